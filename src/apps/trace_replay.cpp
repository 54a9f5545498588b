#include "apps/trace_replay.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "apps/ideal_cache.h"
#include "apps/trace_prompts.h"

namespace deepinfer::apps {
namespace {

using Seconds = std::chrono::duration<double>;

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all_pages = 0;
  std::size_t resident_pages = 0;
  statm >> all_pages >> resident_pages;
  return resident_pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

class Replay {
 public:
  Replay(engine::Engine& engine, const Trace& trace, const ReplayOptions& options)
      : engine_(engine), trace_(trace), options_(options), ideal_(options.num_blocks, options.num_states) {
    report_.num_requests = trace.requests.size();
    report_.ttft_seconds.reserve(trace.requests.size());
    report_.tpot_seconds.reserve(trace.requests.size());
  }

  Result<ReplayReport> run() {
    begin_ = std::chrono::steady_clock::now();
    while (num_ended_ < report_.num_requests) {
      if (auto submitted = submit_due(); !submitted) {
        return std::unexpected(std::move(submitted.error()));
      }
      if (!engine_.step() && next_ < trace_.requests.size()) {
        std::this_thread::sleep_until(due(next_));
      }
    }
    report_.seconds = Seconds(std::chrono::steady_clock::now() - begin_).count();
    report_.resident_bytes_end = resident_bytes();
    std::ranges::sort(report_.ttft_seconds);
    std::ranges::sort(report_.tpot_seconds);
    return std::move(report_);
  }

 private:
  /// One request between its submission and its end.
  struct Running {
    std::size_t index = 0;
    TimePoint wanted;
    TimePoint first_token{};
    std::vector<TokenId> tokens;
    std::size_t num_prompt = 0;
  };

  /// By the trace's clock; without one a request is due at once.
  [[nodiscard]] TimePoint due(std::size_t index) const {
    if (options_.speed <= 0) {
      return begin_;
    }
    return begin_ + std::chrono::duration_cast<Duration>(Seconds(trace_.requests[index].arrival_seconds / options_.speed));
  }

  Result<void> submit_due() {
    while (next_ < trace_.requests.size()) {
      const TimePoint now = std::chrono::steady_clock::now();
      const bool is_due =
          options_.speed > 0 ? due(next_) <= now : next_ - num_ended_ < static_cast<std::size_t>(options_.max_unfinished);
      if (!is_due) {
        break;
      }
      const std::size_t index = next_++;
      if (auto submitted = submit(index, options_.speed > 0 ? due(index) : now); !submitted) {
        return submitted;
      }
    }
    return {};
  }

  Result<void> submit(std::size_t index, TimePoint wanted) {
    ScaledRequest scaled = scaled_request(
        trace_.requests[index], index,
        {.divisor = options_.divisor, .vocab_size = engine_.limits().vocab_size, .max_total = options_.max_model_len});
    const std::size_t num_prompt = scaled.prompt.size();
    auto running = std::make_shared<Running>(Running{.index = index, .wanted = wanted, .tokens = scaled.prompt, .num_prompt = num_prompt});
    engine::GenerationRequest request{.prompt = std::move(scaled.prompt),
                                      .sampling = {.temperature = 0},
                                      .max_tokens = scaled.num_output,
                                      .ignore_eos = true};
    const auto submitted =
        engine_.submit(std::move(request), [this, running](engine::Output&& output) { take(*running, output); });
    if (!submitted && submitted.error().kind != ErrorKind::exhausted) {
      return std::unexpected(submitted.error());
    }
    if (!submitted) {
      ++report_.num_refused;
      count_ideal(index, {});
      count_end();
      return {};
    }
    report_.num_cut += scaled.was_cut ? 1 : 0;
    report_.num_prompt_tokens += static_cast<std::int64_t>(running->num_prompt);
    return {};
  }

  void take(Running& running, const engine::Output& output) {
    const TimePoint now = std::chrono::steady_clock::now();
    if (running.first_token == TimePoint{} && !output.tokens.empty()) {
      running.first_token = now;
      report_.ttft_seconds.push_back(Seconds(now - running.wanted).count());
    }
    for (const engine::TokenOutput& token : output.tokens) {
      running.tokens.push_back(token.token);
    }
    if (!output.finish) {
      return;
    }
    const std::size_t num_output = running.tokens.size() - running.num_prompt;
    report_.num_failed += output.finish->reason == engine::FinishReason::length ? 0 : 1;
    report_.num_output_tokens += static_cast<std::int64_t>(num_output);
    report_.num_cached_tokens += output.num_cached_tokens;
    ++report_.misses[static_cast<std::size_t>(output.prefix_miss)];
    if (num_output > 1) {
      report_.tpot_seconds.push_back(Seconds(now - running.first_token).count() / static_cast<double>(num_output - 1));
    }
    count_ideal(running.index, ended(running));
    count_end();
  }

  /// What a request was when it ended, for the ideal cache.
  struct Ended {
    std::vector<kvcache::BlockHash> blocks;
    std::size_t num_usable = 0;
    std::size_t num_held = 0;
  };

  [[nodiscard]] Ended ended(const Running& running) const {
    const auto block_size = static_cast<std::size_t>(options_.positions_per_block);
    const std::size_t num_computed = running.tokens.size() - 1;
    Ended out{.blocks = {}, .num_usable = (running.num_prompt - 1) / block_size, .num_held = (num_computed + block_size - 1) / block_size};
    kvcache::BlockHash last = kvcache::root_hash({});
    for (std::size_t end = block_size; end <= num_computed; end += block_size) {
      last = kvcache::next_hash(last, std::span(running.tokens).subspan(end - block_size, block_size));
      out.blocks.push_back(last);
    }
    return out;
  }

  /// In order of arrival; requests that ended before an earlier one wait for it.
  void count_ideal(std::size_t index, Ended&& request) {
    waiting_.emplace(index, std::move(request));
    for (auto first = waiting_.begin(); first != waiting_.end() && first->first == next_ideal_; first = waiting_.erase(first)) {
      const Ended& of = first->second;
      report_.num_ideal_tokens += ideal_.run(of.blocks, of.num_usable, of.num_held) * std::int64_t{options_.positions_per_block};
      ++next_ideal_;
    }
  }

  void count_end() {
    ++num_ended_;
    if (num_ended_ == report_.num_requests / 2) {
      report_.resident_bytes_half = resident_bytes();
    }
    if (options_.on_end) {
      options_.on_end(num_ended_);
    }
  }

  engine::Engine& engine_;
  const Trace& trace_;
  const ReplayOptions& options_;
  IdealCache ideal_;
  ReplayReport report_;
  TimePoint begin_;
  std::map<std::size_t, Ended> waiting_;  // by index
  std::size_t next_ideal_ = 0;
  std::size_t next_ = 0;
  std::size_t num_ended_ = 0;
};

}  // namespace

Result<ReplayReport> replay(engine::Engine& engine, const Trace& trace, const ReplayOptions& options) {
  return Replay(engine, trace, options).run();
}

double percentile(const std::vector<double>& ascending, double percent) {
  if (ascending.empty()) {
    return 0.0;
  }
  const double rank = percent / 100.0 * static_cast<double>(ascending.size());
  const auto index = static_cast<std::size_t>(std::max(0.0, rank - 1e-9));
  return ascending[std::min(index, ascending.size() - 1)];
}

}  // namespace deepinfer::apps
