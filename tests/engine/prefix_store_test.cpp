// Prefixes below the device: what comes back is what was put, or nothing.
#include "engine/prefix_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/check.h"

namespace deepinfer::engine {
namespace {

namespace fs = std::filesystem;

class StoreFolder : public testing::Test {
 protected:
  StoreFolder() { fs::remove_all(root_); }
  ~StoreFolder() override { fs::remove_all(root_); }

  DiskTier open(std::size_t max_bytes = 1 << 20, const std::string& owner = "model") const {
    auto tier = DiskTier::open(root_, owner, max_bytes);
    check(tier.has_value(), "the folder can be made");
    return std::move(*tier);
  }
  fs::path only_file() const { return fs::directory_iterator(root_ / "model")->path(); }

  const fs::path root_ = fs::temp_directory_path() / ("deepinfer_prefix_store_" + std::to_string(getpid()));
};

PrefixKey key(std::uint64_t number, PrefixPart part = PrefixPart::block) { return {.prefix = {.words = {number, ~number}}, .part = part}; }

std::vector<std::byte> bytes(std::uint64_t seed, std::size_t size = 1000) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(size);
  for (std::byte& byte : out) {
    byte = static_cast<std::byte>(random());
  }
  return out;
}

TEST_F(StoreFolder, TheDiskGivesBackWhatWasWrittenAlsoToTheNextProcess) {
  {
    DiskTier tier = open();
    EXPECT_TRUE(tier.write(key(1), bytes(1)));
    EXPECT_TRUE(tier.write(key(1, PrefixPart::state), bytes(2)));
    EXPECT_TRUE(tier.write(key(2), {}));
    EXPECT_EQ(tier.read(key(1)), bytes(1));
  }
  DiskTier tier = open();
  EXPECT_EQ(tier.num_files(), 3U);
  EXPECT_EQ(tier.read(key(1)), bytes(1));
  EXPECT_EQ(tier.read(key(1, PrefixPart::state)), bytes(2));
  EXPECT_EQ(tier.read(key(2)), std::vector<std::byte>{});
  EXPECT_EQ(tier.read(key(3)), std::nullopt);
  EXPECT_FALSE(open(1 << 20, "other model").contains(key(1)));
}

TEST_F(StoreFolder, ADamagedFileIsAMissAndGone) {
  const auto damage = [this](std::size_t place) {
    std::fstream file(only_file(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(place));
    const char old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(place));
    file.put(static_cast<char>(old ^ 1));
  };
  const std::size_t size = [&] {
    open().write(key(1), bytes(1));
    return fs::file_size(only_file());
  }();
  for (std::size_t place = 0; place < size; place += place < 80 || place + 80 > size ? 7 : 101) {
    DiskTier tier = open();
    ASSERT_TRUE(tier.write(key(1), bytes(1)));
    damage(place);
    EXPECT_EQ(tier.read(key(1)), std::nullopt) << "byte " << place;
    EXPECT_FALSE(tier.contains(key(1)));
    EXPECT_EQ(tier.num_bytes(), 0U);
    EXPECT_TRUE(fs::is_empty(root_ / "model"));
  }
}

TEST_F(StoreFolder, ATruncatedFileIsAMiss) {
  open().write(key(1), bytes(1));
  const std::size_t size = fs::file_size(only_file());
  for (const std::size_t left : {std::size_t{0}, std::size_t{10}, size / 2, size - 1}) {
    open().write(key(1), bytes(1));
    fs::resize_file(only_file(), left);
    DiskTier tier = open();
    EXPECT_EQ(tier.read(key(1)), std::nullopt) << left << " of " << size << " bytes";
  }
}

TEST_F(StoreFolder, AFileUnderAnotherNameIsAMiss) {
  open().write(key(1), bytes(1));
  std::string name = only_file().filename().string();
  name[0] = name[0] == '0' ? '1' : '0';
  fs::rename(only_file(), root_ / "model" / name);
  DiskTier tier = open();
  EXPECT_EQ(tier.num_files(), 1U);
  EXPECT_EQ(tier.read({.prefix = {.words = {0x1000000000000001, ~std::uint64_t{1}}}}), std::nullopt);
  EXPECT_EQ(tier.num_files(), 0U);
}

TEST_F(StoreFolder, WhatACrashLeftUnfinishedIsSweptAndForeignFilesAreNot) {
  open();
  const fs::path unfinished = root_ / "model" / "00000000000000010000000000000002.block.unfinished";
  const fs::path foreign = root_ / "model" / "notes.txt";
  std::ofstream(unfinished) << "half";
  std::ofstream(foreign) << "mine";
  const DiskTier tier = open();
  EXPECT_EQ(tier.num_files(), 0U);
  EXPECT_FALSE(fs::exists(unfinished));
  EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(StoreFolder, TheDiskStaysWithinItsBoundAndTheLeastUsedGoes) {
  DiskTier tier = open(4000);
  for (std::uint64_t number = 1; number <= 3; ++number) {
    EXPECT_TRUE(tier.write(key(number), bytes(number)));
  }
  EXPECT_EQ(tier.num_files(), 3U);
  EXPECT_TRUE(tier.read(key(1)));
  EXPECT_TRUE(tier.write(key(4), bytes(4)));
  EXPECT_LE(tier.num_bytes(), 4000U);
  EXPECT_TRUE(tier.contains(key(1)));
  EXPECT_FALSE(tier.contains(key(2)));
  EXPECT_FALSE(tier.write(key(5), bytes(5, 5000))) << "larger than the bound";
  EXPECT_EQ(tier.read(key(4)), bytes(4));
  EXPECT_EQ(open(1200).num_files(), 1U) << "a smaller bound at the next start";
}

TEST_F(StoreFolder, ADiskThatRefusesLosesPrefixesAndNothingElse) {
  PrefixStore store(1500, open());
  fs::remove_all(root_);  // as a full or vanished disk: nothing can be written
  for (std::uint64_t number = 1; number <= 4; ++number) {
    store.put(key(number), bytes(number));
  }
  store.settle();
  EXPECT_EQ(store.stats().num_refused, 3);
  EXPECT_EQ(store.get(key(4)), bytes(4));
  EXPECT_EQ(store.get(key(1)), std::nullopt);
}

TEST_F(StoreFolder, MemorySpillsToDiskAndGivesTheRestAtTheEnd) {
  {
    PrefixStore store(2500, open());
    for (std::uint64_t number = 1; number <= 4; ++number) {
      store.put(key(number), bytes(number));
    }
    store.settle();
    EXPECT_EQ(store.stats().num_in_memory, 2U);
    EXPECT_EQ(store.stats().num_on_disk, 2U);
    for (std::uint64_t number = 1; number <= 4; ++number) {
      EXPECT_TRUE(store.contains(key(number)));
      EXPECT_EQ(store.get(key(number)), bytes(number));
    }
  }
  EXPECT_EQ(open().num_files(), 4U);
}

TEST_F(StoreFolder, TheWorkerTakesWritesAndBringsReadsWithoutAnybodyWaiting) {
  {
    DiskWorker worker(open());
    for (std::uint64_t i = 0; i < 50; ++i) {
      worker.write(key(i), bytes(i));
      EXPECT_TRUE(worker.contains(key(i))) << "on its way is there";
      worker.begin_read(key(i));
    }
    for (std::uint64_t i = 0; i < 50; ++i) {
      worker.wait_for(key(i));
      EXPECT_EQ(worker.take(key(i)), bytes(i));
      EXPECT_EQ(worker.take(key(i)), std::nullopt) << "once";
    }
    worker.begin_read(key(100));
    EXPECT_FALSE(worker.is_reading(key(100))) << "what is not there is not read";
  }
  EXPECT_EQ(open().num_files(), 50U) << "the end of a worker writes what it has taken";
}

TEST_F(StoreFolder, TheQueueOfTheWorkerIsBounded) {
  DiskWorker worker(open(), 2500);
  for (std::uint64_t i = 0; i < 200; ++i) {
    worker.write(key(i), bytes(i));
  }
  for (std::uint64_t i = 200; i < 220; ++i) {
    worker.write(key(i), bytes(i), WhenFull::wait);
    EXPECT_TRUE(worker.contains(key(i)));
  }
  EXPECT_LE(worker.stats().num_refused, 200);
}

TEST(PrefixStore, WithoutADiskWhatDoesNotFitIsLost) {
  PrefixStore store(2500);
  for (std::uint64_t number = 1; number <= 3; ++number) {
    store.put(key(number), bytes(number));
  }
  EXPECT_FALSE(store.contains(key(1)));
  EXPECT_EQ(store.get(key(2)), bytes(2));
  store.put(key(4), bytes(4));
  EXPECT_FALSE(store.contains(key(3))) << "the second was used since";
  EXPECT_EQ(store.stats().memory_bytes, 2000U);
}

}  // namespace
}  // namespace deepinfer::engine
