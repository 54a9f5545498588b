// The grammar probe as a program of its own, for grammar_bar.py before and beside the deepinfer command.
// usage: grammar_probe TOKENIZER_JSON [VOCAB_SIZE]
#include <cstdlib>
#include <iostream>
#include <string>

#include "grammar/probe.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: grammar_probe TOKENIZER_JSON [VOCAB_SIZE]\n";
    return 2;
  }
  const auto tokenizer = deepinfer::tokenizer::Tokenizer::load(argv[1]);
  if (!tokenizer) {
    std::cerr << tokenizer.error().message << "\n";
    return 1;
  }
  deepinfer::grammar::ProbeOptions options;
  options.vocab_size = argc > 2 ? std::atoi(argv[2]) : 0;
  options.version = "deepinfer grammar";
  deepinfer::grammar::ProbeSession session(*tokenizer, options);
  std::cout << session.ready_line() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const std::optional<std::string> answer = session.answer(line);
    if (!answer) {
      break;
    }
    std::cout << *answer << std::endl;
  }
  return 0;
}
