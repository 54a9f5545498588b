// What a request wants its reply to fit: read from the body, and put together with thinking and tools into one grammar for the whole
// reply (structured_output.md). Not here: compiling (grammar), masks (engine), what the prompt says about it (recipe).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "grammar/composite.h"
#include "recipe/convert.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::server {

/// How much of calls of tools that are not strict is enforced: nothing, the form and the names, or the arguments' schema too.
enum class ToolConstraint { off, structure, schema };

/// The members of a body that conversion ignores, refuses or reduces.
struct RequestedConstraint {
  std::optional<grammar::CompositeJob::Body> body = {};
  std::string param = {};                         ///< the member that `body` came from
  std::optional<json::Value> prompt_schema = {};  ///< a schema that conversion does not put into the prompt
  /// Of so_args: the grammar is about all generated tokens, thinking included.
  bool covers_all = false;
  std::vector<TokenId> trigger_ids = {};
  std::optional<TokenId> bound_id = {};
  /// Schemas of strict tools as declared, by name; conversion drops their definitions.
  std::map<std::string, std::string, std::less<>> strict_parameters = {};
  bool has_parallel_calls = true;
};

/// official: only forms that the official conversion knows. extended: also those of this server.
enum class BodyForms { official, extended };

/// Takes from `body` what conversion would refuse. Members of wrong types are left for conversion to refuse.
/// Errors: invalid_argument, two constraints in one request, a malformed so_args.
[[nodiscard]] Result<RequestedConstraint> take_constraint(recipe::Api api, json::Value& body, BodyForms forms = BodyForms::extended);

struct ConstraintSettings {
  ToolConstraint tools = ToolConstraint::structure;
  TokenId thinking_end;
  TokenId dsml;
};

/// Settings with the ids that `tokenizer` has for the recipe's control tokens. Error: unsupported, it lacks one.
[[nodiscard]] Result<ConstraintSettings> constraint_settings(const tokenizer::Tokenizer& tokenizer, ToolConstraint tools);

/// The grammar of the whole reply; nullopt: anything goes.
[[nodiscard]] std::optional<grammar::CompositeJob> constraint_job(const RequestedConstraint& requested,
                                                                  const recipe::ConvertedRequest& request,
                                                                  const ConstraintSettings& settings);

/// The error body of a constraint that was refused, in the form of the API; its message begins with the member at fault.
struct ConstraintRefusal {
  std::string body;
  std::string message;
};
[[nodiscard]] ConstraintRefusal constraint_refusal(recipe::Api api, const RequestedConstraint& requested,
                                                   const grammar::CompileError& error);

}  // namespace deepinfer::server
