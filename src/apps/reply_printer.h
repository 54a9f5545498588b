// Chat chunks as they come, for people: the answer on stdout, the thinking on stderr, calls as lines of JSON on stdout.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "recipe/reply_stream.h"

namespace deepinfer::apps {

class ReplyPrinter {
 public:
  /// Styles are used for what goes to a terminal only.
  ReplyPrinter();

  void print(const recipe::Event& event);
  /// Ends the last line.
  void finish();

  /// The reply as a message for the next request: content, reasoning_content and tool_calls.
  [[nodiscard]] json::Value message() const;
  [[nodiscard]] bool has_calls() const { return !calls_.empty(); }
  [[nodiscard]] const std::string& content() const { return content_; }

  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
  };
  [[nodiscard]] const std::vector<Call>& calls() const { return calls_; }

 private:
  void print_reasoning(std::string_view text);
  void print_content(std::string_view text);
  void take_calls(const json::Value& deltas);

  bool styles_stderr_;
  bool is_thinking_ = false;
  std::string content_;
  std::string reasoning_;
  std::vector<Call> calls_;
};

}  // namespace deepinfer::apps
