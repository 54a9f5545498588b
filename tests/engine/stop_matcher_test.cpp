// Stop strings against a naive search over the whole text, for every cut of the text into tokens.
#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

namespace deepinfer::engine {
namespace {

struct Shown {
  std::string text;   // of released tokens
  std::string found;  // stop string
  std::string before;
  std::size_t num_tokens = 0;  // given until the end
};

Shown feed(const std::vector<std::string>& stops, const std::vector<std::string>& tokens) {
  StopMatcher matcher(stops);
  Shown out;
  std::size_t num_released = 0;
  for (const std::string& token : tokens) {
    ++out.num_tokens;
    const StopMatcher::Progress progress = matcher.append(token);
    for (std::int32_t i = 0; i < progress.num_released; ++i) {
      out.text += tokens[num_released++];
    }
    if (!progress.found.empty()) {
      out.found = progress.found;
      out.before = progress.text_before;
      break;
    }
  }
  return out;
}

TEST(StopMatcher, WithoutStopStringsReleasesEverythingAtOnce) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.append("abc").num_released, 1);
  EXPECT_EQ(matcher.append("").num_released, 1);
}

TEST(StopMatcher, FindsAStopStringAcrossTokensAndInsideOne) {
  EXPECT_EQ(feed({"stop"}, {"a s", "to", "p it"}).before, "a ");
  EXPECT_EQ(feed({"stop"}, {"one", "a stop"}).before, "a ");
  const Shown shown = feed({"END"}, {"one ", "two", " E", "N", "D!"});
  EXPECT_EQ(shown.text, "one two");
  EXPECT_EQ(shown.before, " ");
  EXPECT_EQ(shown.found, "END");
}

TEST(StopMatcher, ReleasesWhatCannotBecomeAStopStringAnyMore) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.append("a").num_released, 0);
  EXPECT_EQ(matcher.append("a").num_released, 0);
  EXPECT_EQ(matcher.append("a").num_released, 1);
  EXPECT_EQ(matcher.append("c").num_released, 3);
  EXPECT_EQ(matcher.append("xa").num_released, 0);
  EXPECT_EQ(matcher.append("y").num_released, 2);
}

TEST(StopMatcher, TheFirstToBeCompleteCountsAndOfThoseTheLongest) {
  EXPECT_EQ(feed({"xabc", "ab"}, {"xabc"}).found, "ab");
  EXPECT_EQ(feed({"bc", "abc"}, {"xab", "c"}).found, "abc");
  EXPECT_EQ(feed({"abc", "bc"}, {"xabc"}).before, "x");
}

TEST(StopMatcher, TokensWithoutBytesAreReleasedInOrder) {
  StopMatcher matcher({"ab"});
  EXPECT_EQ(matcher.append("").num_released, 1);
  EXPECT_EQ(matcher.append("a").num_released, 0);
  EXPECT_EQ(matcher.append("").num_released, 0);
  EXPECT_EQ(matcher.append("c").num_released, 3);
}

/// End of the first stop string to be complete and where it starts; npos: none.
std::pair<std::size_t, std::size_t> naive_stop(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t start = std::string::npos;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        start = std::min(start, end - stop.size());
      }
    }
    if (start != std::string::npos) {
      return {end, start};
    }
  }
  return {std::string::npos, std::string::npos};
}

TEST(StopMatcher, AgreesWithANaiveSearchForEveryCut) {
  const std::uint64_t seed = 20266;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 4'000; ++round) {
    const auto random_text = [&](std::size_t max_size) {
      std::string out;
      for (std::size_t size = 1 + random() % max_size; out.size() < size;) {
        out += static_cast<char>('a' + random() % 2);
      }
      return out;
    };
    std::vector<std::string> stops;
    for (std::size_t count = 1 + random() % 3; stops.size() < count;) {
      stops.push_back(random_text(6));
    }
    const std::string text = random_text(24);
    std::vector<std::string> tokens;
    std::vector<std::size_t> ends;
    for (std::size_t place = 0; place < text.size();) {
      tokens.push_back(text.substr(place, random() % 4));
      place += tokens.back().size();
      ends.push_back(place);
    }
    const Shown shown = feed(stops, tokens);
    const auto [end, start] = naive_stop(stops, text);
    if (end == std::string::npos) {
      ASSERT_TRUE(shown.found.empty()) << text;
      // What is withheld is at most a proper beginning of a stop string, and the token it begins in.
      const std::string withheld = text.substr(shown.text.size());
      ASSERT_TRUE(withheld.empty() || std::ranges::any_of(stops,
                                                          [&](const std::string& stop) {
                                                            for (std::size_t size = 1; size < stop.size() && size <= withheld.size();
                                                                 ++size) {
                                                              if (stop.starts_with(withheld.substr(withheld.size() - size))) {
                                                                return true;
                                                              }
                                                            }
                                                            return false;
                                                          }))
          << text;
    } else {
      ASSERT_EQ(shown.text + shown.before, text.substr(0, start)) << text;
      ASSERT_EQ(shown.num_tokens, static_cast<std::size_t>(std::ranges::lower_bound(ends, end) - ends.begin()) + 1);
    }
  }
}

}  // namespace
}  // namespace deepinfer::engine
