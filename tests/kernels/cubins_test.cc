// Programs compiled at run time are compiled once, on few threads, and kept.
#include "kernels/compiled/cubins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/temp_folder.h"

namespace warpcall::compiled {
namespace {

using testing::ReadFile;
using ::testing::SizeIs;
using testing::TempFolder;

// A compiler that records its inputs.
class CubinsTest : public ::testing::Test {
 protected:
  Cubins::Options Options() {
    Cubins::Options options;
    options.compile = [this](const std::string& source) -> absl::StatusOr<std::string> {
      ++compiled_;
      if (!status_.ok()) return status_;
      return absl::StrCat("code of ", source);
    };
    options.compiler = "the compiler 1.0";
    options.now_ns = [this] { return now_ns_.load(); };
    return options;
  }
  Cubins::Options WithDisk() {
    Cubins::Options options = Options();
    options.disk = *DiskCache::Open(folder_.Path("."));
    return options;
  }
  static Program Numbered(int number) { return {absl::StrCat("source ", number), "entry"}; }

  TempFolder folder_;
  std::atomic<int> compiled_{0};
  absl::Status status_;
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

struct Stop final : StopFlag {
  bool IsSet() const override { return set; }
  std::atomic<bool> set{false};
};

// While a compiler works, a caller whose job ended leaves at once, and callers that wait for its
// work try themselves.
TEST_F(CubinsTest, WhoIsToStopWaitsNoLongerAndOthersGoOn) {
  absl::Notification is_compiling;
  absl::Notification go;
  std::atomic<int> compiled{0};
  Cubins::Options options = Options();
  options.threads = 1;
  options.compile = [&](const std::string& source) -> absl::StatusOr<std::string> {
    if (++compiled == 1) {
      is_compiling.Notify();
      go.WaitForNotification();
    }
    return absl::StrCat("code of ", source);
  };
  Cubins cubins(options);
  Stop first_stop, second_stop, third_stop;
  absl::Status first, second, third, fourth;
  std::vector<std::thread> threads;
  threads.emplace_back([&] { first = cubins.Get({"source", "entry"}, &first_stop).status(); });
  is_compiling.WaitForNotification();
  // One asks for the same, one for another that needs the thread, and one for the same to the end.
  threads.emplace_back([&] { second = cubins.Get({"source", "entry"}, &second_stop).status(); });
  threads.emplace_back([&] { third = cubins.Get({"another", "entry"}, &third_stop).status(); });
  std::thread last([&] { fourth = cubins.Get({"source", "entry"}).status(); });
  while (cubins.counts()[Counts::kMemoryMisses] < 4) std::this_thread::yield();
  for (Stop* const stop : {&first_stop, &second_stop, &third_stop}) stop->set = true;
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status* const status : {&first, &second, &third})
    EXPECT_EQ(status->code(), absl::StatusCode::kCancelled) << *status;
  go.Notify();
  last.join();
  EXPECT_TRUE(fourth.ok()) << fourth;
  EXPECT_EQ(compiled, 2) << "what nobody waits for and was not begun is not";
  EXPECT_TRUE(cubins.Get({"another", "entry"}).ok());
}

TEST_F(CubinsTest, AProgramIsCompiledOnceAndItsCodeKept) {
  Cubins cubins(Options());
  const CubinPtr first = *cubins.Get({"source", "entry"});
  EXPECT_EQ(first->source(), "source");
  EXPECT_EQ(first->entry(), "entry");
  EXPECT_EQ(first->image(), "code of source");
  EXPECT_EQ(*cubins.Get({"source", "entry"}), first);
  EXPECT_EQ(compiled_, 1);
  EXPECT_NE(*cubins.Get({"source", "another"}), first);
  EXPECT_NE(*cubins.Get({"another", "entry"}), first);
  EXPECT_EQ(compiled_, 3);
  const Counts counts = cubins.counts();
  EXPECT_EQ(counts[Counts::kMemoryHits], 1);
  EXPECT_EQ(counts[Counts::kMemoryMisses], 3);
  EXPECT_EQ(counts[Counts::kDiskHits], 0);
  EXPECT_EQ(counts[Counts::kDiskMisses], 0);
  EXPECT_EQ(counts[Counts::kMemoryBytes], 2 * (6 + 14) + 7 + 15);
  EXPECT_EQ(std::accumulate(counts.compilations.begin(), counts.compilations.end(), 0), 3);
}

TEST_F(CubinsTest, TheTimeOfCompilingIsCountedFailuresIncluded) {
  Cubins::Options options = Options();
  options.compile = [this](const std::string& source) -> absl::StatusOr<std::string> {
    now_ns_ += 3'000'000;
    if (source == "wrong") return absl::InternalError("wrong");
    return source;
  };
  Cubins cubins(std::move(options));
  EXPECT_TRUE(cubins.Get({"right", "entry"}).ok());
  EXPECT_FALSE(cubins.Get({"wrong", "entry"}).ok());
  EXPECT_TRUE(cubins.Get({"right", "entry"}).ok());
  EXPECT_EQ(cubins.counts().compilations[BucketOf(3'000'000)], 2);
  EXPECT_EQ(cubins.counts()[Counts::kCompileNs], 6'000'000);
}

TEST_F(CubinsTest, WhatAnotherProcessCompiledComesFromDisk) {
  EXPECT_TRUE(Cubins(WithDisk()).Get({"source", "entry"}).ok());
  EXPECT_EQ(compiled_, 1);
  Cubins cubins(WithDisk());
  EXPECT_EQ((*cubins.Get({"source", "entry"}))->image(), "code of source");
  EXPECT_EQ(compiled_, 1);
  EXPECT_TRUE(cubins.Get({"source", "entry"}).ok());
  EXPECT_EQ(cubins.counts()[Counts::kDiskHits], 1);
  EXPECT_EQ(cubins.counts()[Counts::kDiskMisses], 0);
  EXPECT_EQ(cubins.counts()[Counts::kMemoryHits], 1);
  EXPECT_EQ(cubins.counts()[Counts::kMemoryMisses], 1);
  // A miss: another compiler's code, code for another entry, and a source that only reads alike.
  Cubins::Options newer = WithDisk();
  newer.compiler = "the compiler 1.1";
  Cubins others(std::move(newer));
  EXPECT_TRUE(others.Get({"source", "entry"}).ok());
  EXPECT_TRUE(cubins.Get({"source", "another"}).ok());
  EXPECT_TRUE(cubins.Get({"ysource", "entr"}).ok());
  EXPECT_EQ(compiled_, 4);
  EXPECT_EQ(others.counts()[Counts::kDiskMisses], 1);
  EXPECT_THAT(folder_.Names(), SizeIs(4));
}

TEST_F(CubinsTest, AFileThatWasBrokenIsCompiledAnewAndReplaced) {
  EXPECT_TRUE(Cubins(WithDisk()).Get({"source", "entry"}).ok());
  const std::string path = folder_.Path(folder_.Names()[0]);
  const std::string right = ReadFile(path);
  for (const std::string& broken : {right.substr(0, right.size() / 2), right + "x"}) {
    std::ofstream(path, std::ios::binary) << broken;
    Cubins cubins(WithDisk());
    EXPECT_EQ((*cubins.Get({"source", "entry"}))->image(), "code of source");
    EXPECT_EQ(cubins.counts()[Counts::kDiskMisses], 1);
    EXPECT_EQ(ReadFile(path), right);
  }
  EXPECT_EQ(compiled_, 3);
}

TEST_F(CubinsTest, CodeFromDiskThatTheDeviceDoesNotTakeIsCompiledAnew) {
  EXPECT_TRUE(Cubins(WithDisk()).Get({"source", "entry"}).ok());
  Cubins::Options options = WithDisk();
  int loads = 0;
  absl::Status first = absl::InternalError("no code for this device");
  options.load = [&](const Program& program, const std::string& image) -> absl::StatusOr<CubinPtr> {
    if (++loads == 1) return first;
    return std::make_shared<const Cubin>(program, image + ", loaded");
  };
  Cubins cubins(options);
  EXPECT_EQ((*cubins.Get({"source", "entry"}))->image(), "code of source, loaded");
  EXPECT_EQ(compiled_, 2);
  // A load that failed for want of memory would fail again: it is not compiled anew.
  loads = 0;
  first = absl::ResourceExhaustedError("memory");
  Cubins others(options);
  EXPECT_EQ(others.Get({"source", "entry"}).status(), first);
  EXPECT_EQ(compiled_, 2);
  EXPECT_TRUE(others.Get({"source", "entry"}).ok());
  EXPECT_EQ(others.counts()[Counts::kDiskHits], 2);
}

TEST_F(CubinsTest, HoweverManyAskAtOnceItIsCompiledOnce) {
  constexpr int kAskers = 8;
  Cubins::Options options = Options();
  absl::Notification all_ask;
  options.compile = [&](const std::string&) -> absl::StatusOr<std::string> {
    ++compiled_;
    all_ask.WaitForNotification();
    return std::string("code");
  };
  Cubins cubins(std::move(options));
  std::vector<CubinPtr> found(kAskers);
  std::vector<std::thread> threads;
  for (CubinPtr& cubin : found)
    threads.emplace_back([&] { cubin = *cubins.Get({"source", "entry"}); });
  while (cubins.counts()[Counts::kMemoryMisses] < kAskers) std::this_thread::yield();
  all_ask.Notify();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiled_, 1);
  for (const CubinPtr& cubin : found) EXPECT_EQ(cubin, found[0]);
}

TEST_F(CubinsTest, ThreadsOfItsOwnCompileAndNoMoreThanTheyAre) {
  constexpr int kAskers = 16;
  std::atomic<int> at_work{0};
  std::atomic<int> most{0};
  std::atomic<int> begun{0};
  Cubins::Options options = Options();
  options.threads = 2;
  options.compile = [&](const std::string&) -> absl::StatusOr<std::string> {
    const int now = ++at_work;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    // The first two meet, and so are at work at once; others may come meanwhile.
    ++begun;
    while (begun < 2) std::this_thread::yield();
    for (int i = 0; i < 200; ++i) std::this_thread::yield();
    std::string self = absl::StrCat(std::hash<std::thread::id>()(std::this_thread::get_id()));
    --at_work;
    return self;
  };
  Cubins cubins(std::move(options));
  std::vector<std::string> compilers(kAskers);
  std::vector<std::thread> threads;
  for (int i = 0; i < kAskers; ++i)
    threads.emplace_back([&, i] {
      compilers[static_cast<size_t>(i)] = (*cubins.Get(Numbered(i)))->image();
      EXPECT_NE(compilers[static_cast<size_t>(i)],
                absl::StrCat(std::hash<std::thread::id>()(std::this_thread::get_id())));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 2);
  std::sort(compilers.begin(), compilers.end());
  EXPECT_EQ(std::unique(compilers.begin(), compilers.end()) - compilers.begin(), 2);
}

TEST_F(CubinsTest, RefusalsAreKeptForAWhileAndOtherErrorsMayPass) {
  Cubins::Options options = Options();
  options.refusal_ns = 1000;
  Cubins cubins(std::move(options));
  for (const absl::Status& refusal :
       {absl::InternalError("error: what"), absl::UnimplementedError("not for this GPU")}) {
    compiled_ = 0;
    status_ = refusal;
    const Program program = {refusal.ToString(), "entry"};
    for (int i = 0; i < 3; ++i) EXPECT_EQ(cubins.Get(program).status(), refusal);
    EXPECT_EQ(compiled_, 1);
    now_ns_ += 999;
    EXPECT_EQ(cubins.Get(program).status(), refusal);
    EXPECT_EQ(compiled_, 1);
    now_ns_ += 1;
    status_ = absl::OkStatus();
    EXPECT_TRUE(cubins.Get(program).ok());
    EXPECT_EQ(compiled_, 2);
  }
  compiled_ = 0;
  status_ = absl::ResourceExhaustedError("memory");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cubins.Get(Numbered(1)).status(), status_);
  EXPECT_EQ(compiled_, 3);
}

TEST_F(CubinsTest, WhatNobodyUsesMakesRoomAndWhatIsUsedStays) {
  Cubins::Options options = Options();
  options.cubins_max = 3;
  Cubins cubins(std::move(options));
  const CubinPtr used = *cubins.Get(Numbered(0));
  for (int i = 1; i <= 2; ++i) ASSERT_TRUE(cubins.Get(Numbered(i)).ok());
  ASSERT_TRUE(cubins.Get(Numbered(1)).ok());  // and so 2 was asked for longest ago
  ASSERT_TRUE(cubins.Get(Numbered(3)).ok());
  compiled_ = 0;
  EXPECT_EQ(*cubins.Get(Numbered(0)), used);
  for (const int i : {1, 3}) ASSERT_TRUE(cubins.Get(Numbered(i)).ok());
  EXPECT_EQ(compiled_, 0);
  ASSERT_TRUE(cubins.Get(Numbered(2)).ok());
  EXPECT_EQ(compiled_, 1);
  std::vector<CubinPtr> all;
  for (int i = 0; i < 5; ++i) all.push_back(*cubins.Get(Numbered(i)));
  compiled_ = 0;
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(*cubins.Get(Numbered(i)), all[static_cast<size_t>(i)]) << "in use, beyond the limit";
  EXPECT_EQ(compiled_, 0);
  const std::weak_ptr<const Cubin> first = all[1];
  all.clear();
  ASSERT_TRUE(cubins.Get(Numbered(5)).ok());
  EXPECT_TRUE(first.expired());
  EXPECT_EQ(cubins.counts()[Counts::kMemoryBytes], 3 * (8 + 16));
}

TEST_F(CubinsTest, SourcesAndCodeAreBoundedByTheirBytesToo) {
  Cubins::Options options = Options();
  options.bytes_max = 2 * (8 + 16);
  Cubins cubins(std::move(options));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(cubins.Get(Numbered(i)).ok());
  EXPECT_EQ(cubins.counts()[Counts::kMemoryBytes], 2 * (8 + 16));
  compiled_ = 0;
  for (const int i : {2, 3}) ASSERT_TRUE(cubins.Get(Numbered(i)).ok());
  EXPECT_EQ(compiled_, 0);
  const absl::Status status =
      cubins.Get({std::string(Cubins::kSourceBytesMax + 1, ' '), "entry"}).status();
  EXPECT_EQ(status, absl::UnimplementedError(
                        "the source of entry has 262145 bytes; the limit is 262144"));
  EXPECT_EQ(compiled_, 0);
}

}  // namespace
}  // namespace warpcall::compiled
