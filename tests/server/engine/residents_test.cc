#include "server/engine/residents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/engine/refusal.h"
#include "tests/server/nanoseconds.h"

namespace warpcall {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kSecond;
using ::testing::SizeIs;

TensorSpec Floats(int64_t count) { return {DataType::kFloat32, {count}}; }

Sha256 DigestOf(uint8_t byte) {
  Sha256 sha256;
  sha256.fill(byte);
  return sha256;
}

class ResidentsTest : public ::testing::Test {
 protected:
  // Two devices: a GPU of 4000 bytes and a CPU of 1000.
  ResidentsTest() : residents_(MakeOptions()) {
    residents_.AddDevice({"cuda:0", DeviceKind::kCuda, 4000});
    residents_.AddDevice({"cpu", DeviceKind::kCpu, 1000});
  }
  ~ResidentsTest() override {
    for (const auto& owner : {"", "alice", "bob"})
      for (const Residents::Listed& listed : residents_.List(owner)) Free(owner, listed.handle);
    EXPECT_EQ(allocated_, 0);
  }

  Residents::Options MakeOptions() {
    Residents::Options options;
    options.clock = [this] { return now_ns_.load(); };
    options.unix_ns = [this] { return 1000 * kSecond + now_ns_.load(); };
    options.ttl_ns = 10 * kSecond;
    options.ttl_ns_max = 100 * kSecond;
    options.timer = false;
    return options;
  }
  std::function<absl::StatusOr<Buffer>(size_t)> Allocator() {
    return [this](size_t bytes) -> absl::StatusOr<Buffer> {
      if (fails_) return absl::ResourceExhaustedError("the device has no memory");
      allocated_ += static_cast<int64_t>(bytes);
      return Buffer(
          std::malloc(std::max<size_t>(bytes, 1)), bytes,
          [](void* owner, void* data, size_t size) {
            std::free(data);
            *static_cast<std::atomic<int64_t>*>(owner) -= static_cast<int64_t>(size);
          },
          &allocated_);
    };
  }

  // The new tensor's handle, or the error.
  std::string Put(const std::string& owner, int64_t bytes, int device = 0,
                  const Residents::Terms& terms = {}) {
    const auto content = residents_.Reserve({owner, bytes_max_}, Floats(bytes / 4), device);
    if (!content.ok()) return std::string(content.status().message());
    if (const absl::Status allocated = (*content)->Allocate(Allocator()); !allocated.ok())
      return std::string(allocated.message());
    const auto named = residents_.Name(*content, terms);
    return named.ok() ? named->handle : std::string(named.status().message());
  }
  static Residents::Terms Evictable() {
    Residents::Terms terms;
    terms.evictable = true;
    return terms;
  }
  // OK, or the trailer.
  std::string Use(const std::string& owner, const std::string& handle) {
    const absl::string_view view = handle;
    const auto uses = residents_.Use(owner, absl::MakeConstSpan(&view, 1));
    if (uses.ok()) return "";
    return LostHandles(uses.status())->substr(handle.size() + 1);
  }
  Residents::Freed Free(const std::string& owner, const std::string& handle) {
    const absl::string_view view = handle;
    return residents_.Free(owner, absl::MakeConstSpan(&view, 1));
  }
  std::vector<std::string> Handles(const std::string& owner) {
    std::vector<std::string> handles;
    for (const Residents::Listed& listed : residents_.List(owner)) handles.push_back(listed.handle);
    return handles;
  }

  std::atomic<int64_t> now_ns_{0};
  std::atomic<int64_t> allocated_{0};
  std::atomic<bool> fails_{false};
  int64_t bytes_max_ = kNoDeadline;
  Residents residents_;
};

TEST_F(ResidentsTest, MemoryIsReservedUntilTheLastReferenceGoes) {
  const std::string handle = Put("alice", 2400);
  const absl::string_view view = handle;
  auto uses = residents_.Use("alice", absl::MakeConstSpan(&view, 1));
  ASSERT_TRUE(uses.ok());
  EXPECT_EQ((*uses)[0].content()->bytes(), 2400u);
  EXPECT_EQ(Free("alice", handle).bytes, 2400);
  EXPECT_EQ(residents_.usage(0).tensors, 0);
  EXPECT_EQ(residents_.usage(0).bytes, 2400);
  EXPECT_THAT(Put("alice", 2000),
              HasSubstr("the tensor has 2000 bytes, and tensors hold 2400 of 4000 (resident_mib); "
                        "none of them is about to expire"));
  uses->clear();
  EXPECT_EQ(residents_.usage(0).bytes, 0);
  EXPECT_THAT(Put("alice", 2000), SizeIs(40));
}

TEST_F(ResidentsTest, WhatCanNeverFitIsNotToBeTriedAgain) {
  const auto content = residents_.Reserve({"alice"}, Floats(1001), 0);
  EXPECT_EQ(RetryPushbackMs(content.status()), kNeverRetry);
  EXPECT_EQ(content.status().message(),
            "the tensor has 4004 bytes; the limit is 4000 (resident_mib)");
  bytes_max_ = 100;
  EXPECT_EQ(Put("alice", 104), "the tensor has 104 bytes; the limit is 100 (resident_bytes_max)");
  Put("alice", 60);
  EXPECT_THAT(Put("alice", 60), HasSubstr("hold 60 of 100 (resident_bytes_max); the next on cuda:0 "
                                          "expires in 10 s, unless it is used"));
  EXPECT_THAT(Put("bob", 60), SizeIs(40));
}

TEST_F(ResidentsTest, AnAllocationThatFailsLeavesNothing) {
  fails_ = true;
  EXPECT_EQ(Put("alice", 400), "the device has no memory");
  EXPECT_EQ(residents_.usage(0).bytes, 0);
}

TEST_F(ResidentsTest, TimeToLiveCountsFromTheEndOfTheLastUse) {
  const std::string idle = Put("alice", 400);
  const std::string used = Put("alice", 400);
  const absl::string_view view = used;
  auto uses = residents_.Use("alice", absl::MakeConstSpan(&view, 1));
  now_ns_ = 10 * kSecond;
  EXPECT_THAT(Handles("alice"), ElementsAre(used));
  EXPECT_EQ(Use("alice", idle), "expired");
  now_ns_ = 50 * kSecond;
  EXPECT_THAT(Handles("alice"), ElementsAre(used));
  uses->clear();
  EXPECT_EQ(residents_.List("alice")[0].expires_unix_ns, 1060 * kSecond);
  now_ns_ = 60 * kSecond - 1;
  residents_.EndDue();
  EXPECT_THAT(Handles("alice"), ElementsAre(used));
  now_ns_ = 61 * kSecond;
  residents_.EndDue();
  EXPECT_THAT(Handles("alice"), IsEmpty());
  EXPECT_EQ(residents_.usage(0).ended[static_cast<size_t>(ResidentEnd::kExpired)], 2);
  EXPECT_EQ(allocated_, 0);
}

TEST_F(ResidentsTest, OnlyIdleEvictableTensorsMakeRoomLongestUnusedFirst) {
  const std::string kept = Put("alice", 1000);
  const std::string first = Put("alice", 1000, 0, Evictable());
  const std::string second = Put("bob", 1000, 0, Evictable());
  const std::string busy = Put("alice", 1000, 0, Evictable());
  const absl::string_view view = busy;
  auto uses = residents_.Use("alice", absl::MakeConstSpan(&view, 1));
  now_ns_ = kSecond;
  EXPECT_EQ(Use("alice", first), "");
  EXPECT_THAT(Put("alice", 400), SizeIs(40));
  EXPECT_EQ(Use("bob", second), "evicted");
  EXPECT_THAT(Put("alice", 600), SizeIs(40));  // fits beside it
  EXPECT_EQ(Use("alice", first), "");
  EXPECT_THAT(Put("alice", 1000), SizeIs(40));
  EXPECT_EQ(Use("alice", first), "evicted");
  // Nothing that can go makes room for it, so nothing goes.
  EXPECT_THAT(Put("alice", 3000), HasSubstr("(resident_mib)"));
  EXPECT_EQ(Use("alice", kept), "");
  EXPECT_EQ(Use("alice", busy), "");
}

TEST_F(ResidentsTest, ATensorThatFindsNoRoomEvictsNothing) {
  Put("alice", 2000);
  const std::string evictable = Put("bob", 1000, 0, Evictable());
  EXPECT_THAT(Put("alice", 2500), HasSubstr("(resident_mib)"));
  EXPECT_EQ(Use("bob", evictable), "");
  EXPECT_THAT(Put("alice", 2000), SizeIs(40));
  EXPECT_EQ(Use("bob", evictable), "evicted");
}

// Equal content is counted once: its names go together, or none does.
TEST_F(ResidentsTest, ContentIsEvictedWithAllItsNames) {
  Residents::Terms terms = Evictable();
  terms.sha256 = DigestOf(1);
  const std::string first = Put("alice", 3000, 0, terms);
  const auto name_again = [&](bool evictable) {
    terms.evictable = evictable;
    const auto content = residents_.Find("alice", 0, Floats(750), DigestOf(1));
    return residents_.Name(content, terms)->handle;
  };
  const std::string kept = name_again(false);
  EXPECT_THAT(Put("bob", 2000), HasSubstr("(resident_mib)"));
  Free("alice", kept);
  const std::string second = name_again(true);
  const absl::string_view view = second;
  auto uses = residents_.Use("alice", absl::MakeConstSpan(&view, 1));
  EXPECT_THAT(Put("bob", 2000), HasSubstr("(resident_mib)"));
  EXPECT_EQ(Use("alice", first), "");
  uses->clear();
  EXPECT_THAT(Put("bob", 2000), SizeIs(40));
  EXPECT_EQ(Use("alice", first), "evicted");
  EXPECT_EQ(Use("alice", second), "evicted");
}

TEST_F(ResidentsTest, WhereAnEvictedTensorIsStillHeldTheNextGoesToo) {
  Residents::Terms terms = Evictable();
  terms.sha256 = DigestOf(1);
  const std::string first = Put("alice", 1000, 0, terms);
  ResidentContentPtr held = residents_.Find("alice", 0, Floats(250), DigestOf(1));
  const std::string second = Put("bob", 1000, 0, Evictable());
  Put("bob", 2000);
  EXPECT_THAT(Put("bob", 1000), SizeIs(40));
  EXPECT_EQ(Use("alice", first), "evicted");
  EXPECT_EQ(Use("bob", second), "evicted");
  held.reset();
}

TEST_F(ResidentsTest, RoomThatJobsHoldIsAskedForAgainSoon) {
  bytes_max_ = 3000;
  const auto pushback_ms = [&](const std::string& owner, int64_t bytes) {
    return RetryPushbackMs(residents_.Reserve({owner, bytes_max_}, Floats(bytes / 4), 0).status());
  };
  const std::string evictable = Put("alice", 2400, 0, Evictable());
  const absl::string_view view = evictable;
  auto uses = residents_.Use("alice", absl::MakeConstSpan(&view, 1));
  EXPECT_EQ(pushback_ms("bob", 2000), 100);
  EXPECT_EQ(pushback_ms("alice", 1000), 10'000);  // a principal's own limit evicts nothing
  Free("alice", evictable);
  EXPECT_EQ(pushback_ms("bob", 2000), 100);
  EXPECT_EQ(pushback_ms("alice", 1000), 100);
  uses->clear();
  const std::string kept = Put("alice", 2400);
  EXPECT_EQ(pushback_ms("bob", 2000), 10'000);
  EXPECT_EQ(pushback_ms("alice", 1000), 10'000);
  now_ns_ = 8 * kSecond;
  EXPECT_EQ(pushback_ms("bob", 2000), 2'000);
  Free("alice", kept);
}

TEST_F(ResidentsTest, TheHandlesOfOneCallHaveALimit) {
  std::vector<std::string> handles(65, Put("alice", 4).substr(0, 8) + std::string(32, '0'));
  std::vector<absl::string_view> views(handles.begin(), handles.end());
  EXPECT_EQ(residents_.Use("alice", views).status().message(),
            "there are 65 handles; the limit is 64");
  views.back() = "";
  const absl::Status lost = residents_.Use("alice", views).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(*LostHandles(lost), SizeIs(64 * 49 - 1));
}

TEST_F(ResidentsTest, AnExpiredTensorMakesRoomBeforeAnotherIsEvicted) {
  Put("alice", 2000);
  now_ns_ = 5 * kSecond;
  const std::string evictable = Put("alice", 2000, 0, Evictable());
  now_ns_ = 11 * kSecond;
  EXPECT_THAT(Put("alice", 2000), SizeIs(40));
  EXPECT_EQ(Use("alice", evictable), "");
}

TEST_F(ResidentsTest, ANameEndsForItsOwnerAlone) {
  const std::string handle = Put("alice", 400);
  EXPECT_EQ(Use("bob", handle), "unknown");
  EXPECT_THAT(Free("bob", handle).unknown, ElementsAre(handle));
  EXPECT_EQ(Use("alice", handle), "");
  Free("alice", handle);
  EXPECT_EQ(Use("alice", handle), "freed");
  EXPECT_EQ(Use("bob", handle), "unknown");
  const std::string before = "00000000" + handle.substr(8);
  EXPECT_EQ(Use("alice", before), "lost");
}

TEST_F(ResidentsTest, ReasonsAreKeptForADayAndForSoMany) {
  const std::string first = Put("alice", 4);
  Free("alice", first);
  for (size_t i = 0; i < Residents::kEndedPerOwnerMax - 1; ++i) Free("alice", Put("alice", 4));
  EXPECT_EQ(Use("alice", first), "freed");
  Free("alice", Put("alice", 4));
  EXPECT_EQ(Use("alice", first), "unknown");
  const std::string last = Put("alice", 4);
  Free("alice", last);
  now_ns_ = Residents::kEndedNs + 2;
  Free("alice", Put("alice", 4));
  EXPECT_EQ(Use("alice", last), "unknown");
}

TEST_F(ResidentsTest, ALostDeviceTakesItsTensors) {
  const std::string lost = Put("alice", 400, 0);
  const std::string kept = Put("alice", 400, 1);
  const auto content = residents_.Reserve({"alice"}, Floats(10), 0);
  residents_.Lose(0, 1);
  EXPECT_EQ(Use("alice", lost), "lost");
  EXPECT_EQ(Use("alice", kept), "");
  // It came too late.
  EXPECT_EQ(residents_.Name(*content, {}).status().message(), "cuda:0 was lost");
  const std::string next = Put("alice", 400, 0);
  EXPECT_THAT(next, SizeIs(40));
  // The loss is reported by each job that saw it, however late.
  residents_.Lose(0, 1);
  EXPECT_EQ(Use("alice", next), "");
  residents_.Lose(0, 2);
  EXPECT_EQ(Use("alice", next), "lost");
}

TEST_F(ResidentsTest, EqualContentIsHeldOnce) {
  Residents::Terms terms;
  terms.sha256 = DigestOf(1);
  const std::string first = Put("alice", 400, 0, terms);
  EXPECT_EQ(residents_.Find("bob", -1, Floats(100), DigestOf(1)), nullptr);
  EXPECT_EQ(residents_.Find("alice", -1, Floats(100), DigestOf(2)), nullptr);
  EXPECT_EQ(residents_.Find("alice", -1, Floats(50), DigestOf(1)), nullptr);
  EXPECT_EQ(residents_.Find("alice", 1, Floats(100), DigestOf(1)), nullptr);
  std::string second;
  {
    const ResidentContentPtr content = residents_.Find("alice", 0, Floats(100), DigestOf(1));
    ASSERT_NE(content, nullptr);
    second = residents_.Name(content, terms)->handle;
  }
  EXPECT_EQ(residents_.usage(0).tensors, 2);
  EXPECT_EQ(residents_.usage(0).bytes, 400);
  EXPECT_EQ(Free("alice", first).bytes, 0);
  EXPECT_NE(residents_.Find("alice", 0, Floats(100), DigestOf(1)), nullptr);
  EXPECT_EQ(Free("alice", second).bytes, 400);
  EXPECT_EQ(residents_.Find("alice", 0, Floats(100), DigestOf(1)), nullptr);
}

TEST_F(ResidentsTest, ItsEndGivesBackWhatHasNames) {
  {
    Residents ending(MakeOptions());
    ending.AddDevice({"cpu", DeviceKind::kCpu, 1000});
    for (const int64_t count : {10, 20}) {
      const auto content = ending.Reserve({"alice"}, Floats(count), 0);
      ASSERT_TRUE((*content)->Allocate(Allocator()).ok());
      for (int name = 0; name < 2; ++name) EXPECT_TRUE(ending.Name(*content, {}).ok());
    }
    EXPECT_EQ(allocated_, 120);
  }
  EXPECT_EQ(allocated_, 0);
}

TEST_F(ResidentsTest, ATensorGoesWhereItsOwnersNewestIs) {
  const auto choose = [&](const char* owner, int broken = -1) {
    return residents_.ChooseDevice({owner}, [&](int device) { return device != broken; });
  };
  residents_.AddDevice({"cuda:1", DeviceKind::kCuda, 3000});
  EXPECT_EQ(choose("alice"), 0);     // the GPU of the most room
  EXPECT_EQ(choose("alice", 0), 2);  // another one, while that one is restarted
  Put("alice", 40, 1);
  EXPECT_EQ(choose("alice"), 1);
  EXPECT_EQ(choose("bob"), 0);
}

TEST_F(ResidentsTest, TermsHaveLimits) {
  Residents::Terms terms;
  terms.ttl_ns = -1;
  EXPECT_THAT(residents_.Check(terms).message(), HasSubstr("ttl_ns is -1; "));
  terms.ttl_ns = 101 * kSecond;
  EXPECT_THAT(residents_.Check(terms).message(),
              HasSubstr("101 s; the limit is 100 s (resident_ttl_seconds_max)"));
  terms.ttl_ns = 100 * kSecond;
  terms.label = std::string(257, 'x');
  EXPECT_EQ(residents_.Check(terms).message(), "label has 257 bytes; the limit is 256");
  terms.label.pop_back();
  EXPECT_TRUE(residents_.Check(terms).ok());
}

TEST_F(ResidentsTest, AnOwnerHasAnEndToItsNames) {
  for (size_t i = 0; i < Residents::kTensorsPerOwnerMax; ++i)
    ASSERT_THAT(Put("alice", 0), SizeIs(40));
  EXPECT_THAT(Put("alice", 0), HasSubstr("16384 tensors of this principal are on the server; the "
                                         "limit is 16384"));
  EXPECT_THAT(Put("bob", 0), SizeIs(40));
}

// Every thread's own tensors are there for as long as it has not freed them; ThreadSanitizer looks
// at the rest.
TEST_F(ResidentsTest, ManyThreadsPutUseAndFree) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      std::mt19937 random(static_cast<uint32_t>(i));
      const std::string owner = i % 2 == 0 ? "alice" : "bob";
      std::vector<std::string> handles;
      for (int step = 0; step < 3000; ++step) {
        if (handles.empty() || random() % 3 == 0) {
          const std::string handle =
              Put(owner, 4 * static_cast<int64_t>(random() % 60), static_cast<int>(random() % 2));
          if (handle.size() == 40) handles.push_back(handle);
          continue;
        }
        const size_t at = random() % handles.size();
        if (random() % 2 == 0) {
          EXPECT_EQ(Use(owner, handles[at]), "");
        } else {
          EXPECT_THAT(Free(owner, handles[at]).unknown, IsEmpty());
          handles.erase(handles.begin() + static_cast<ptrdiff_t>(at));
        }
        if (random() % 64 == 0) residents_.EndDue();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(residents_.usage(0).bytes, 4000);
}

}  // namespace
}  // namespace warpcall
