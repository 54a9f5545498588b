// The line protocol of `deepinfer tokenizer probe` (cli.md, probes): one JSON request line to one JSON answer line.
// Not input and output: apps/ reads and writes the lines.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/engram_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::tokenizer {

/// The answer to one request line, without a line break. Every failure is an answer {"error": {"kind", "message"}}.
[[nodiscard]] std::string answer_probe_line(const Tokenizer& tokenizer, const EngramVocabulary& engram, std::string_view line);

}  // namespace deepinfer::tokenizer
