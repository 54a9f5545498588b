#include "apps/probe_request.h"

#include <limits>
#include <optional>
#include <utility>

namespace deepinfer::apps {
namespace {

std::unexpected<Error> wrong(std::string_view name, std::string_view expected) {
  return fail(ErrorKind::invalid_argument, "'" + std::string(name) + "' must be " + std::string(expected));
}

const json::Value* member(const json::Value& request, std::string_view name) {
  const json::Value* const value = request.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::vector<TokenId>> ids_of(const json::Value& value, std::string_view name) {
  const json::Array* const list = value.as_array();
  if (list == nullptr) {
    return wrong(name, "a list of token ids");
  }
  std::vector<TokenId> out;
  for (const json::Value& item : *list) {
    const std::optional<std::int64_t> id = item.as_number() == nullptr ? std::nullopt : item.as_number()->as_int64();
    if (!id || *id < 0 || *id > std::numeric_limits<std::int32_t>::max()) {
      return wrong(name, "a list of token ids");
    }
    out.push_back(TokenId{static_cast<std::int32_t>(*id)});
  }
  return out;
}

std::string_view kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return "invalid_argument";
    case ErrorKind::not_found:
      return "not_found";
    case ErrorKind::exhausted:
      return "exhausted";
    case ErrorKind::corrupt:
      return "corrupt";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::io:
      return "io";
    case ErrorKind::cancelled:
      return "cancelled";
  }
  return "";
}

Result<engine::SamplingParams> sampling_member(const json::Value& request) {
  const json::Value* const sampling = member(request, "sampling");
  if (sampling == nullptr) {
    return engine::SamplingParams{.temperature = 0};
  }
  const auto temperature = number_member(*sampling, "temperature", 1.0);
  const auto top_p = number_member(*sampling, "top_p", 1.0);
  const auto top_k = integer_member(*sampling, "top_k", -1);
  const auto seed = integer_member(*sampling, "seed", 0);
  if (const Error* const error = first_error(temperature, top_p, top_k, seed)) {
    return fail(Error(*error), "sampling");
  }
  return engine::SamplingParams{
      .temperature = *temperature, .top_p = *top_p, .top_k = static_cast<std::int32_t>(*top_k), .seed = static_cast<std::uint64_t>(*seed)};
}

}  // namespace

Result<std::string> text_member(const json::Value& request, std::string_view name, std::string_view otherwise) {
  const json::Value* const value = member(request, name);
  if (value == nullptr) {
    return std::string(otherwise);
  }
  const std::string* const text = value->as_string();
  return text == nullptr ? Result<std::string>(wrong(name, "a string")) : *text;
}

Result<std::int64_t> integer_member(const json::Value& request, std::string_view name, std::int64_t otherwise) {
  const json::Value* const value = member(request, name);
  if (value == nullptr) {
    return otherwise;
  }
  const std::optional<std::int64_t> number = value->as_number() == nullptr ? std::nullopt : value->as_number()->as_int64();
  return number ? Result<std::int64_t>(*number) : wrong(name, "an integer");
}

Result<double> number_member(const json::Value& request, std::string_view name, double otherwise) {
  const json::Value* const value = member(request, name);
  if (value == nullptr) {
    return otherwise;
  }
  return value->as_number() == nullptr ? Result<double>(wrong(name, "a number")) : value->as_number()->as_double();
}

Result<std::vector<TokenId>> ids_member(const json::Value& request, std::string_view name) {
  const json::Value* const value = member(request, name);
  return value == nullptr ? Result<std::vector<TokenId>>(wrong(name, "a list of token ids")) : ids_of(*value, name);
}

Result<engine::GenerationRequest> generation_request(const json::Value& request) {
  auto ids = ids_member(request, "ids");
  const auto max_tokens = integer_member(request, "max_tokens", 0);
  const auto sampling = sampling_member(request);
  if (const Error* const error = first_error(ids, max_tokens, sampling)) {
    return std::unexpected(*error);
  }
  if (*max_tokens < 0 || *max_tokens > std::numeric_limits<std::int32_t>::max()) {
    return wrong("max_tokens", "a positive integer");
  }
  const json::Value* const ignore_eos = member(request, "ignore_eos");
  engine::GenerationRequest out;
  out.prompt = std::move(*ids);
  out.sampling = *sampling;
  out.max_tokens = static_cast<std::int32_t>(*max_tokens);
  const json::Value* const speculative = member(request, "speculative");
  out.drafts = speculative == nullptr || speculative->as_bool() == nullptr || *speculative->as_bool();
  out.ignore_eos = ignore_eos != nullptr && ignore_eos->as_bool() != nullptr && *ignore_eos->as_bool();
  return out;
}

Result<std::vector<std::vector<TokenId>>> companion_prompts(const json::Value& request) {
  std::vector<std::vector<TokenId>> out;
  const json::Value* const value = member(request, "batch_with");
  if (value == nullptr) {
    return out;
  }
  const json::Array* const prompts = value->as_array();
  if (prompts == nullptr) {
    return wrong("batch_with", "a list of lists of token ids");
  }
  for (const json::Value& prompt : *prompts) {
    auto ids = ids_of(prompt, "batch_with");
    if (!ids) {
      return std::unexpected(std::move(ids.error()));
    }
    out.push_back(std::move(*ids));
  }
  return out;
}

json::Value error_answer(const Error& error) {
  return json::Object{{"error", json::Object{{"kind", kind_name(error.kind)}, {"message", error.message}}}};
}

}  // namespace deepinfer::apps
