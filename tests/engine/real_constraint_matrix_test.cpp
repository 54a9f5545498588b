// Schemas of the shared corpus as formats and as strict tools, with thinking and without, at several temperatures: every finished reply is
// valid by a validator of its own, every cut one is the beginning of a valid one, and neither drafts nor jump-ahead change a token.
// A few schemas unless the environment variable DEEPINFER_SCHEMAS asks for more.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "engine/nano_constraints.h"
#include "grammar/composite.h"
#include "grammar/matcher.h"

namespace deepinfer::test {
namespace {

using engine::FinishReason;
using engine::GenerationRequest;
using engine::SpeculationMode;

constexpr std::string_view kTool = "record";

struct Asked {
  const json::Value* schema = nullptr;
  Thinking thinking = Thinking::off;
  bool is_tool = false;
  GenerationRequest request;
};

struct Tokens {
  TokenId thinking_end;
  TokenId marker;
};

/// A tool takes an object whose members have plain names.
bool is_tool_schema(const json::Value& schema) {
  const json::Value* type = schema.find("type");
  const json::Value* properties = schema.find("properties");
  const bool is_object = type != nullptr && type->as_string() != nullptr && *type->as_string() == "object" && properties != nullptr &&
                         properties->as_object() != nullptr;
  return is_object && std::ranges::all_of(*properties->as_object(), [](const auto& member) {
           return member.first.find_first_of("\"<>\\\n") == std::string::npos;
         });
}

std::shared_ptr<const grammar::CompiledGrammar> composed(const json::Value& schema, Thinking thinking, bool is_tool, const Tokens& tokens) {
  grammar::CompositeJob job{.dsml_token = tokens.marker};
  if (is_tool) {
    job.tools = {{.name = std::string(kTool), .parameters = json::to_text(schema), .is_strict = true}};
    job.tool_use = grammar::ToolUse::required;
    job.has_parallel_calls = false;
    job.block_is_open = thinking == Thinking::off;
  } else {
    job.body = grammar::CompositeJob::Body{
        .kind = grammar::GrammarKind::json_schema, .text = json::to_text(schema), .options = {.max_blanks = 1}};
  }
  if (thinking == Thinking::on) {
    job.reasoning_end_ids = {tokens.thinking_end};
  }
  auto out = grammar::compile_composite(job);
  return out ? *std::move(out) : nullptr;
}

std::vector<Asked> asked_for(const std::vector<Case>& all, const Tokens& tokens) {
  std::vector<Asked> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const Thinking thinking : {Thinking::off, Thinking::on}) {
      const std::vector<std::vector<TokenId>> starts = prompts(thinking);
      for (const bool is_tool : {false, true}) {
        const auto grammar = !is_tool || is_tool_schema(all[i].schema) ? composed(all[i].schema, thinking, is_tool, tokens) : nullptr;
        for (std::size_t t = is_tool ? i % 3 : 0; grammar != nullptr && t < (is_tool ? i % 3 + 1 : 3); ++t) {
          GenerationRequest request{.prompt = starts[(i + t) % starts.size()], .max_tokens = 80};
          request.sampling = {.temperature = static_cast<double>(t) * 0.7, .seed = 7 * i + t};
          if (thinking == Thinking::on) {  // nano would mostly think until it is cut
            request.sampling.adjustments = {.bias = {{tokens.thinking_end, 3.0F}}};
          }
          request.constraint = engine::Constraint{.grammar = grammar};
          out.push_back({.schema = &all[i].schema, .thinking = thinking, .is_tool = is_tool, .request = std::move(request)});
        }
      }
    }
  }
  return out;
}

std::vector<Reply> answers(Nano& nano, const std::vector<Asked>& asked) {
  std::vector<GenerationRequest> requests;
  for (const Asked& one : asked) {
    requests.push_back(one.request);
  }
  return nano.answer(requests);
}

/// Reads `text` as far as `literal` goes; false when it begins otherwise.
bool skip(std::string_view& text, std::string_view literal) {
  const bool is_there = text.starts_with(literal);
  text.remove_prefix(is_there ? literal.size() : 0);
  return is_there;
}

std::string_view take_until(std::string_view& text, std::string_view literal) {
  const std::size_t end = std::min(text.find(literal), text.size());
  const std::string_view out = text.substr(0, end);
  text.remove_prefix(std::min(end + literal.size(), text.size()));
  return out;
}

/// The arguments of the one call in `text` (structured_output.md, "Tool calls"); nullopt when it is not of that form.
std::optional<json::Value> arguments_of(std::string_view text, Thinking thinking) {
  const std::string marker = "｜DSML｜";
  if (thinking == Thinking::on) {
    take_until(text, "<" + marker + " calls>\n");
  }
  if (!skip(text, "<" + marker + " invoke name=\"" + std::string(kTool) + "\">\n")) {
    return std::nullopt;
  }
  json::Object out;
  while (skip(text, "<" + marker + " parameter name=\"")) {
    const std::string name(take_until(text, "\" string=\""));
    const std::string_view is_string = take_until(text, "\">");
    const std::string value(take_until(text, "</" + marker + " parameter>"));
    Result<json::Value> parsed = is_string == "true" ? Result<json::Value>(json::Value(value)) : json::parse(value);
    if (!parsed || out.find(name) != nullptr) {
      return std::nullopt;
    }
    out.set(name, *std::move(parsed));
    const bool has_more = text.starts_with("\n<" + marker);
    text.remove_prefix(has_more ? 1 : 0);
  }
  return text == "\n</" + marker + " invoke>\n</" + marker + " calls>" ? std::optional(json::Value(std::move(out))) : std::nullopt;
}

struct Counts {
  int num_bodies = 0;
  int num_calls = 0;
  int num_cut = 0;
};

/// The reply is what was asked for, or the beginning of it.
void judge(const Asked& asked, const Reply& reply, const Nano& nano, const Tokens& tokens, Counts& counts) {
  if (reply.finish->reason == FinishReason::length) {
    ++counts.num_cut;
    EXPECT_EQ(reply.tokens.size(), 80U);
    grammar::Matcher matcher(asked.request.constraint->grammar, nano.vocabulary_pointer(), {.end_ids = {nano.token("<｜end▁of▁sentence｜>")}});
    EXPECT_TRUE(std::ranges::all_of(reply.tokens, [&](TokenId id) { return matcher.accept(id); }));
    return;
  }
  ASSERT_EQ(reply.finish->reason, FinishReason::stop) << reply.finish->message;
  auto from = reply.tokens.begin();
  if (asked.thinking == Thinking::on) {
    from = std::ranges::find(reply.tokens, tokens.thinking_end);
    ASSERT_NE(from, reply.tokens.end());
    ++from;
  }
  std::string text;
  for (; from != reply.tokens.end(); ++from) {
    text += nano.vocabulary().spelling(*from);
  }
  std::optional<json::Value> value;
  if (asked.is_tool) {
    ++counts.num_calls;
    value = arguments_of(text, asked.thinking);
  } else if (auto parsed = json::parse(text)) {
    ++counts.num_bodies;
    value = *std::move(parsed);
  }
  ASSERT_TRUE(value.has_value()) << text;
  EXPECT_TRUE(is_valid(*asked.schema, *value)) << text;
}

TEST(RealConstraintMatrix, EveryReplyIsValidAndTheSameWhateverIsDrafted) {
  const char* wanted = std::getenv("DEEPINFER_SCHEMAS");
  const std::vector<Case> all = cases(wanted != nullptr ? static_cast<std::size_t>(std::atoi(wanted)) : 8);
  if (all.empty()) {
    std::cout << "absent: the grammar corpus beside the repository\n";
    return;
  }
  Nano plain(SpeculationMode::off, false);
  const Tokens tokens{.thinking_end = plain.token("</think>"), .marker = plain.token("｜DSML｜")};
  const std::vector<Asked> asked = asked_for(all, tokens);
  const std::vector<Reply> replies = answers(plain, asked);
  Counts counts;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    SCOPED_TRACE(std::to_string(i) + " " + json::to_text(*asked[i].schema));
    judge(asked[i], replies[i], plain, tokens, counts);
  }
  std::printf("%zu schemas, %zu requests: %d bodies and %d calls valid, %d cut\n", all.size(), asked.size(), counts.num_bodies,
              counts.num_calls, counts.num_cut);
  EXPECT_GT(counts.num_bodies, static_cast<int>(all.size()));
  EXPECT_GT(counts.num_calls, static_cast<int>(all.size()) / 4);
  struct Way {
    SpeculationMode mode;
    bool jump_ahead;
  };
  for (const Way& way : {Way{SpeculationMode::full, true}, Way{SpeculationMode::full, false}, Way{SpeculationMode::confidence, true}}) {
    Nano drafting(way.mode, true, way.jump_ahead);
    const std::vector<Reply> drafted = answers(drafting, asked);
    const engine::SpeculationStats stats = drafting.engine().stats().speculation;
    std::printf("%lld rounds, %lld of %lld drafts accepted, %lld of %lld forced ones\n", static_cast<long long>(stats.num_rounds),
                static_cast<long long>(stats.num_accepted), static_cast<long long>(stats.num_verified),
                static_cast<long long>(stats.num_forced_accepted), static_cast<long long>(stats.num_forced));
    EXPECT_EQ(stats.num_forced > 0, way.jump_ahead);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      ASSERT_EQ(drafted[i].tokens, replies[i].tokens) << i << " " << json::to_text(*asked[i].schema);
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
