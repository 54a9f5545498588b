// The first masks of a grammar, filled where it was compiled: a step of the engine that comes to them finds them kept (MaskBuilder), and the
// dearest masks of a grammar are mostly those before anything is written.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

namespace deepinfer::grammar {

class CompiledGrammar;
class Vocabulary;

struct WarmUp {
  std::int32_t masks = 16;                ///< of a text, at most
  std::chrono::microseconds time{1'500};  ///< no mask begins later
};

/// Writes a few short texts byte by byte, of what the grammar allows (an object, a string, an array where it may be any), and fills the mask
/// before each byte; leaves the runtime to the grammar's next matcher. Changes no answer. Thread-safe.
void fill_first_masks(const std::shared_ptr<const CompiledGrammar>& grammar, const std::shared_ptr<const Vocabulary>& vocabulary,
                      const WarmUp& bounds = {});

}  // namespace deepinfer::grammar
