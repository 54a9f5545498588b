// Fuzz target: any body is either a request that the engine can check or a refusal with a client's status and a JSON body.
// The first byte chooses the API; the rest is the body.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "server/prepared_request.h"
#include "server/response_store.h"
#include "server/text_body.h"
#include "server/turn_store.h"

namespace {

using namespace deepinfer;

server::ServedModel make_model() {
  auto tokenizer = tokenizer::Tokenizer::load(DEEPINFER_MODELS "/nano/tokenizer.json");
  check(tokenizer.has_value(), "nano's tokenizer can be read");
  return {.name = "nano",
          .device = "none",
          .context_length = 8192,
          .convert = server::convert_options("nano"),
          .tokenizer = *tokenizer,
          .engine = nullptr};
}

void check_refusal(const server::Refusal& refusal) {
  check(refusal.status >= 400 && refusal.status < 500, "what a body causes is the client's error");
  const auto body = json::parse(refusal.body);
  check(body && body->find("error") != nullptr, "a refusal is an error object");
}

void check_prompt(const std::vector<TokenId>& ids, std::int32_t vocab_size) {
  check(!ids.empty(), "a prompt has tokens");
  for (const TokenId id : ids) {
    check(id.value >= 0 && id.value < vocab_size, "a prompt holds ids of the vocabulary");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const server::ServedModel model = make_model();
  static server::TurnStore turns;
  static server::ResponseStore responses;
  if (size == 0) {
    return 0;
  }
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::int32_t vocab_size = model.tokenizer.vocab_size();
  if (data[0] % 4 == 3) {
    const auto request = server::read_text_body(model, body);
    if (!request) {
      check_refusal(request.error());
      return 0;
    }
    for (const server::TextPrompt& prompt : request->prompts) {
      check_prompt(prompt.ids, vocab_size);
    }
    return 0;
  }
  const auto request = server::prepare(
      model, {.api = static_cast<recipe::Api>(data[0] % 4), .body = body, .turns = &turns, .responses = &responses});
  if (!request) {
    check_refusal(request.error());
    return 0;
  }
  check_prompt(request->prompt, vocab_size);
  check(request->max_tokens >= 1, "something is generated");
  return 0;
}
