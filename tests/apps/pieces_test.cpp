// Parts of the command that need no program: progress, lines, request bodies.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "apps/chat_request.h"
#include "apps/lines.h"
#include "apps/progress.h"
#include "apps/reply_printer.h"

namespace deepinfer::apps {
namespace {

TEST(Progress, ALineHasBarPercentAndNote) {
  EXPECT_EQ(progress_line("work", 1, 4, "a file", 8), "work  [##      ]   25%  a file");
  EXPECT_EQ(progress_line("work", 4, 4, "", 4), "work  [####]  100%");
  EXPECT_EQ(progress_line("work", 3, 0, "3 done", 4), "work  3 done");
}

/// A pipe whose reading end is read as lines.
struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends.data()), 0); }
  ~Pipe() {
    ::close(ends[0]);
    close_writer();
  }
  void write(std::string_view text) const { EXPECT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size())); }
  void close_writer() {
    if (ends[1] >= 0) {
      ::close(ends[1]);
      ends[1] = -1;
    }
  }
  std::array<int, 2> ends{};
};

TEST(LineReader, ALineIsThereAsSoonAsItsLineFeedIs) {
  Pipe pipe;
  LineReader reader(pipe.ends[0]);
  pipe.write("one\ntwo\nthr");
  EXPECT_EQ(reader.next(), "one");
  EXPECT_EQ(reader.next(), "two");
  pipe.write("ee");
  pipe.close_writer();
  EXPECT_EQ(reader.next(), "three");
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST(LineReader, AnInterruptEndsTheWaiting) {
  Pipe pipe;
  Pipe interrupt;
  LineReader reader(pipe.ends[0]);
  pipe.write("half");
  interrupt.write("x");
  EXPECT_EQ(reader.next(interrupt.ends[0]), std::nullopt);
  EXPECT_FALSE(reader.is_at_end());
}

TEST(ChatRequest, OnlyGivenFlagsAreInTheBody) {
  const auto settings = chat_settings({}, "nano", ReplyForm::whole);
  ASSERT_TRUE(settings);
  EXPECT_EQ(chat_body(*settings, {chat_message("user", "hi")}),
            R"({"model":"nano","stream":false,"messages":[{"role":"user","content":"hi"}]})");
}

TEST(ChatRequest, FlagsBecomeMembers) {
  ChatFlags flags;
  flags.thinking = "on";
  flags.effort = "low";
  flags.max_tokens = 5;
  flags.seed = 3;
  flags.stop = {"a", "b"};
  const auto settings = chat_settings(flags, "m", ReplyForm::stream);
  ASSERT_TRUE(settings);
  EXPECT_EQ(json::to_text(*settings),
            R"({"model":"m","stream":true,"stream_options":{"include_usage":true},"thinking":{"type":"enabled"},"reasoning_effort":"low",)"
            R"("max_tokens":5,"seed":3,"stop":["a","b"]})");
}

TEST(ChatRequest, MessagesAreAListOrAnObjectThatHoldsOne) {
  EXPECT_EQ(messages_of(json::Array{1, 2}, "f")->size(), 2U);
  EXPECT_EQ(messages_of(json::Object{{"messages", json::Array{1}}}, "f")->size(), 1U);
  EXPECT_FALSE(messages_of(json::Value("text"), "f"));
}

TEST(ReplyPrinter, TheReplyBecomesTheMessageOfTheNextRequest) {
  ReplyPrinter printer;
  const auto print = [&printer](const char* delta) {
    const std::string chunk = std::string(R"({"choices":[{"index":0,"delta":)") + delta + "}]}";
    printer.print({.name = {}, .data = chunk});
  };
  print(R"({"role":"assistant","content":null,"reasoning_content":""})");
  print(R"({"reasoning_content":"hm"})");
  print(R"({"content":"I look."})");
  print(R"({"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]})");
  print(R"({"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]})");
  EXPECT_TRUE(printer.has_calls());
  EXPECT_EQ(json::to_text(printer.message()),
            R"({"role":"assistant","content":"I look.","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function",)"
            R"("function":{"name":"f","arguments":"{}"}}]})");
}

}  // namespace
}  // namespace deepinfer::apps
