// Faults that machines have: no device memory at the n-th allocation, a full disk, a truncated file, requests that are called off.
// Each is a clear error for whom it concerns; everybody else gets the same tokens, and nothing is left over.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "backends/cpu/cpu_device.h"
#include "engine/harness.h"
#include "engine/load.h"

namespace deepinfer::test {
namespace {

namespace fs = std::filesystem;
using engine::FinishReason;

std::atomic<std::int64_t> num_live_buffers = 0;

/// A CPU whose memory ends at a given allocation. Counts the buffers that live.
class FailingDevice final : public Device {
 public:
  explicit FailingDevice(std::int64_t fails_at) : inner_(cpu::make_device({})), fails_at_(fails_at) {}

  [[nodiscard]] const DeviceInfo& info() const override { return inner_->info(); }
  [[nodiscard]] Buffer allocate(std::size_t size_bytes) override {
    if (num_allocations_++ == fails_at_) {
      return {};
    }
    ++num_live_buffers;
    return Buffer(::operator new(std::max<std::size_t>(size_bytes, 1), std::align_val_t{256}), size_bytes, [](void* data, std::size_t) {
      ::operator delete(data, std::align_val_t{256});
      --num_live_buffers;
    });
  }
  [[nodiscard]] std::unique_ptr<Stream> make_stream() override { return inner_->make_stream(); }
  [[nodiscard]] Ops& ops() override { return inner_->ops(); }
  [[nodiscard]] std::int64_t num_allocations() const { return num_allocations_; }

 private:
  std::unique_ptr<Device> inner_;
  std::int64_t fails_at_;
  std::int64_t num_allocations_ = 0;
};

TEST(Fault, DeviceMemoryThatEndsAtAnyAllocationIsAnErrorAndLeavesNothing) {
  const fs::path directory = fs::path(DEEPINFER_TEST_DATA) / "tiny";
  const engine::EngineOptions options{.max_requests = 2, .max_batched_tokens = 16, .max_model_len = 128};
  std::int64_t num_needed = 0;
  {
    FailingDevice device(-1);
    ASSERT_TRUE(engine::load_engine(directory, options, device));
    num_needed = device.num_allocations();
  }
  ASSERT_EQ(num_live_buffers, 0);
  ASSERT_GT(num_needed, 3);
  const std::int64_t stride = std::max<std::int64_t>(1, num_needed / 24);  // loading tiny takes a while under a sanitizer
  for (std::int64_t fails_at = 0; fails_at < num_needed; fails_at += stride) {
    FailingDevice device(fails_at);
    const auto loaded = engine::load_engine(directory, options, device);
    ASSERT_FALSE(loaded) << "allocation " << fails_at;
    EXPECT_EQ(loaded.error().kind, ErrorKind::exhausted) << loaded.error().message;
    EXPECT_NE(loaded.error().message.find("bytes"), std::string::npos) << loaded.error().message;
    EXPECT_EQ(num_live_buffers, 0) << "allocation " << fails_at;
  }
}

TEST(Fault, ADeviceThatFailsEndsEveryRequestWithTheReasonAndLeavesNothing) {
  for (const bool is_late : {false, true}) {  // in a step of prompts, of tokens
    SCOPED_TRACE(is_late);
    Harness harness({.max_requests = 3, .num_extra_slots = 2, .overlap_depth = 1, .prefix_cache = true, .max_drafts = is_late ? 2 : 0});
    std::mt19937_64 random(5);
    std::vector<RequestId> ids;
    for (int i = 0; i < 8; ++i) {
      ids.push_back(harness.submit({.prompt = random_prompt(random, 40), .sampling = {.temperature = 0}, .max_tokens = 20, .ignore_eos = true}));
    }
    for (int step = 0; step < (is_late ? 6 : 1); ++step) {
      ASSERT_TRUE(harness.engine.step());
    }
    harness.model.fault = "the device burnt";
    harness.run_to_the_end();
    harness.engine.check_integrity();
    for (const RequestId id : ids) {
      ASSERT_TRUE(harness.reply(id).finish);
      EXPECT_EQ(harness.reply(id).finish->reason, FinishReason::failed);
      EXPECT_EQ(harness.reply(id).finish->message, "the device burnt");
    }
    const RequestId late = harness.submit({.prompt = random_prompt(random, 4), .max_tokens = 2});
    harness.run_to_the_end();
    EXPECT_EQ(harness.reply(late).finish->message, "the device burnt");
    EXPECT_EQ(harness.engine.stats().num_failed, 9);
    EXPECT_EQ(harness.engine.stats().fault, "the device burnt");
  }
}

/// No file of this process may become longer, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t max_file_bytes) : old_handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{.rlim_cur = max_file_bytes, .rlim_max = old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_handler_);
  }

 private:
  void (*old_handler_)(int);
  rlimit old_{};
};

class DiskFault : public testing::Test {
 protected:
  DiskFault() { fs::remove_all(folder_); }
  ~DiskFault() override { fs::remove_all(folder_); }

  HarnessOptions options() const {
    return {.max_requests = 2,
            .max_model_len = 60,
            .num_blocks = 24,
            .num_extra_slots = 2,
            .prefix_cache = true,
            .has_tiers = true,
            .tier_memory_bytes = 0,
            .tier_directory = folder_};
  }
  /// Prompts that come again and again, so that prefixes go down and come up.
  void serve(Harness& harness) {
    std::mt19937_64 random(71);
    std::vector<engine::GenerationRequest> requests;
    for (int i = 0; i < 6; ++i) {
      requests.push_back({.prompt = random_prompt(random, 33), .sampling = {.temperature = 0}, .max_tokens = 6, .ignore_eos = true});
    }
    for (int round = 0; round < 3; ++round) {
      std::vector<RequestId> ids;
      for (const engine::GenerationRequest& request : requests) {
        ids.push_back(harness.submit(request));
      }
      harness.run_to_the_end();
      harness.engine.check_integrity();
      for (std::size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(harness.reply(ids[i]).tokens, alone(requests[i]).tokens);
      }
    }
  }
  /// Files are written by another thread.
  static bool soon(const std::function<bool()>& condition) {
    for (int i = 0; i < 1000; ++i) {
      if (condition()) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  std::size_t num_files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_ / "fake"), fs::directory_iterator()));
  }

  const fs::path folder_ = fs::temp_directory_path() / ("deepinfer_fault_" + std::to_string(getpid()));
};

TEST_F(DiskFault, AFullDiskCostsCachedPrefixesAndNothingElse) {
  Harness harness(options());
  {
    const FullDisk full(100);
    serve(harness);
    EXPECT_TRUE(soon([&] { return harness.engine.stats().tiers.num_refused > 20 && num_files() == 0; })) << "no half of a file stays";
    EXPECT_EQ(harness.engine.stats().tiers.num_on_disk, 0U);
  }
  serve(harness);
  EXPECT_TRUE(soon([&] { return harness.engine.stats().tiers.num_on_disk > 0; })) << "with room again it is used again";
}

TEST_F(DiskFault, FilesThatAreTruncatedUnderTheEngineAreMisses) {
  Harness harness(options());
  serve(harness);
  ASSERT_TRUE(soon([&] { return num_files() > 4; }));
  for (const auto& file : fs::directory_iterator(folder_ / "fake")) {
    std::error_code ignored;  // a file may be moved or removed meanwhile
    fs::resize_file(file.path(), file.file_size(ignored) / 2, ignored);
  }
  serve(harness);
  EXPECT_GT(harness.engine.stats().tiers.num_damaged, 0);
}

TEST(Fault, CalledOffAndOverdueRequestsInEveryStateLeaveTheOthersAsTheyAre) {
  std::mt19937_64 random(72);
  Harness harness({.max_requests = 3, .max_batched_tokens = 12, .max_model_len = 80, .num_blocks = 34, .prefix_cache = true});
  std::vector<std::pair<RequestId, engine::GenerationRequest>> kept;
  std::vector<RequestId> doomed;
  for (int i = 0; i < 60; ++i) {
    engine::GenerationRequest request = random_request(random, 40, 20);
    request.ignore_eos = true;
    const bool is_kept = i % 3 == 0;
    if (i % 3 == 1) {
      request.time_limit = std::chrono::seconds(1 + random() % 20);
    }
    const RequestId id = harness.submit(request);
    if (is_kept) {
      kept.emplace_back(id, request);
    } else {
      doomed.push_back(id);
    }
    harness.engine.step();
    harness.clock.advance(std::chrono::seconds(1));
    if (i % 3 == 2 && random() % 2 == 0) {
      harness.engine.cancel(doomed[random() % doomed.size()]);
    }
  }
  harness.run_to_the_end();
  harness.engine.check_integrity();
  for (const auto& [id, request] : kept) {
    EXPECT_EQ(harness.reply(id).tokens, alone(request).tokens);
  }
  std::size_t num_called_off = 0;
  for (const RequestId id : doomed) {
    const auto& finish = harness.reply(id).finish;
    ASSERT_TRUE(finish);
    num_called_off += finish->reason == FinishReason::timed_out || finish->reason == FinishReason::cancelled ? 1 : 0;
  }
  EXPECT_GT(num_called_off, 5U);
}

}  // namespace
}  // namespace deepinfer::test
