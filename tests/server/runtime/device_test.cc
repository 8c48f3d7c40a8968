// Contracts of every Device that the engine relies on, run on each kind that this build has.
#include "server/runtime/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/runtime/device_kinds.h"

namespace warpcall {
namespace {

using testing::DeviceKinds;
using testing::KindOfDevice;

class DeviceTest : public ::testing::TestWithParam<KindOfDevice> {
 protected:
  void SetUp() override {
    device_ = GetParam().open();
    if (device_ == nullptr) GTEST_SKIP() << "there is no " << GetParam().name << " device here";
  }

  std::unique_ptr<Device> device_;
};

TEST_P(DeviceTest, DescribesItself) {
  const DeviceProperties& properties = device_->properties();
  EXPECT_FALSE(properties.name.empty());
  EXPECT_FALSE(properties.description.empty());
  EXPECT_GT(properties.memory_bytes, 1 << 20);
  EXPECT_GE(properties.multiprocessors, 1);
  EXPECT_TRUE(device_->healthy());
}

TEST_P(DeviceTest, StagingIsAlignedWritableAndOutlivesTheDevice) {
  auto staging = device_->AllocateStaging(10 << 20);
  ASSERT_TRUE(staging.ok()) << staging.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(staging->data()) % 4096, 0u);
  device_.reset();
  std::memset(staging->data(), 1, staging->bytes());
}

// `rounds` rounds, each with its own kilobytes of the buffers.
void CopyThereAndBack(Device* device, int rounds) {
  constexpr size_t kBytes = 1 << 20;
  auto stream = device->CreateStream();
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE((*stream)->BindThread().ok());
  auto staging = device->AllocateStaging(2 * kBytes);
  auto memory = (*stream)->AllocateMemory(kBytes);
  ASSERT_TRUE(staging.ok() && memory.ok());
  auto* in = static_cast<unsigned char*>(staging->data());
  unsigned char* out = in + kBytes;
  for (size_t i = 0; i < kBytes; ++i) in[i] = static_cast<unsigned char>(i * 7 + i / 251);
  const size_t bytes = kBytes / static_cast<size_t>(rounds);
  ASSERT_TRUE((*stream)->Begin(rounds).ok());
  for (int round = 0; round < rounds; ++round) {
    const size_t at = static_cast<size_t>(round) * bytes;
    char* there = static_cast<char*>(memory->data()) + at;
    EXPECT_TRUE((*stream)->Mark(Milestone::kStart).ok());
    EXPECT_TRUE((*stream)->CopyToDevice(there, in + at, bytes).ok());
    EXPECT_TRUE((*stream)->Mark(Milestone::kInputsReady).ok());
    EXPECT_TRUE((*stream)->Mark(Milestone::kKernelDone).ok());
    EXPECT_TRUE((*stream)->CopyToStaging(out + at, there, bytes).ok());
    EXPECT_TRUE((*stream)->Mark(Milestone::kOutputsReady).ok());
  }
  ASSERT_TRUE((*stream)->Synchronize().ok());
  EXPECT_EQ(std::memcmp(in, out, kBytes), 0);
  const StreamTimes times = (*stream)->Times();
  EXPECT_GT(times.h2d_ns, 0);
  EXPECT_GE(times.kernel_ns, 0);
  EXPECT_GT(times.d2h_ns, 0);
}

TEST_P(DeviceTest, CopiesThereAndBackInOrder) {
  CopyThereAndBack(device_.get(), 1);
  CopyThereAndBack(device_.get(), 16);
}

// A job that ends in an error waits for its enqueued work: others get its memory next. The last of
// `rounds` rounds has only begun, the earlier ones are whole. Mutant: a GPU's stream that takes
// events of rounds as 0 until they are recorded waits for the first alone.
void CopyInAndGiveUp(Device* device, int rounds) {
  constexpr size_t kBytes = size_t{256} << 20;
  auto stream = device->CreateStream();
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE((*stream)->BindThread().ok());
  auto staging = device->AllocateStaging(kBytes);
  auto memory = (*stream)->AllocateMemory(kBytes);
  ASSERT_TRUE(staging.ok() && memory.ok());
  auto* const there = static_cast<char*>(memory->data());
  auto* const here = static_cast<char*>(staging->data());
  std::memset(here, 1, kBytes);
  ASSERT_TRUE((*stream)->Begin(rounds).ok());
  for (int round = 0; round < rounds; ++round) {
    ASSERT_TRUE((*stream)->Mark(Milestone::kStart).ok());
    const bool last = round + 1 == rounds;
    ASSERT_TRUE((*stream)->CopyToDevice(there, here, last ? kBytes : 1).ok());
    if (last) break;
    for (const Milestone milestone :
         {Milestone::kInputsReady, Milestone::kKernelDone, Milestone::kOutputsReady})
      ASSERT_TRUE((*stream)->Mark(milestone).ok());
  }
  ASSERT_TRUE((*stream)->Synchronize().ok());
  // From the end, where a copy that is under way comes last.
  std::memset(here + kBytes / 2, 2, kBytes / 2);
  ASSERT_TRUE((*stream)->Begin(1).ok());
  for (const Milestone milestone :
       {Milestone::kStart, Milestone::kInputsReady, Milestone::kKernelDone})
    ASSERT_TRUE((*stream)->Mark(milestone).ok());
  ASSERT_TRUE((*stream)->CopyToStaging(here, there, kBytes).ok());
  ASSERT_TRUE((*stream)->Synchronize().ok());
  EXPECT_EQ(std::count(here, here + kBytes, 1), static_cast<ptrdiff_t>(kBytes));
}

TEST_P(DeviceTest, WaitsForAJobThatEndsHalfway) {
  CopyInAndGiveUp(device_.get(), 1);
  CopyInAndGiveUp(device_.get(), 2);
}

// Sizes that leave a rest of a vector, and more than all threads compare at once; a byte at either
// end, or none, differs.
TEST_P(DeviceTest, ComparesItsMemory) {
  constexpr size_t kBytesMax = size_t{9} << 20;
  auto stream = device_->CreateStream();
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE((*stream)->BindThread().ok());
  auto staging = device_->AllocateStaging(kBytesMax + sizeof(uint32_t));
  auto a = (*stream)->AllocateMemory(kBytesMax);
  auto b = (*stream)->AllocateMemory(kBytesMax);
  ASSERT_TRUE(staging.ok() && a.ok() && b.ok());
  char* const host = static_cast<char*>(staging->data());
  for (size_t i = 0; i < kBytesMax; ++i) host[i] = static_cast<char>(i / 3);
  auto* const differs = reinterpret_cast<uint32_t*>(host + kBytesMax);
  const auto copy = [&](const Buffer& to, size_t bytes) {
    ASSERT_TRUE((*stream)->CopyToDevice(to.data(), host, bytes).ok());
    ASSERT_TRUE((*stream)->Synchronize().ok());
  };
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{4099}, kBytesMax})
    for (const size_t at : {size_t{0}, bytes - 1, bytes}) {
      if (at > bytes) continue;
      ASSERT_TRUE((*stream)->Begin(1).ok());
      ASSERT_TRUE((*stream)->Mark(Milestone::kStart).ok());
      copy(*a, bytes);
      if (at < bytes) host[at] ^= 1;
      copy(*b, bytes);
      if (at < bytes) host[at] ^= 1;
      *differs = 0;
      ASSERT_TRUE((*stream)->Compare(a->data(), b->data(), bytes, differs).ok());
      ASSERT_TRUE((*stream)->Synchronize().ok());
      EXPECT_EQ(*differs, at < bytes ? 1u : 0u) << bytes << " " << at;
    }
}

TEST_P(DeviceTest, StreamsOfSeveralThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([this, i] {
      for (int k = 0; k < 8; ++k) CopyThereAndBack(device_.get(), 1 << i);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(DeviceTest, CountsItsMemoryAndGivesItBack) {
  auto stream = device_->CreateStream();
  ASSERT_TRUE(stream.ok());
  const int64_t before = device_->memory_usage().used_bytes;
  {
    auto memory = (*stream)->AllocateMemory(3 << 20);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(device_->memory_usage().used_bytes, before + (3 << 20));
    EXPECT_GE(device_->memory_usage().reserved_bytes, 3 << 20);
    Buffer moved = *std::move(memory);
    EXPECT_EQ(moved.bytes(), size_t{3} << 20);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(moved.data()) % kOperandAlignmentBytes, 0u);
  }
  EXPECT_EQ(device_->memory_usage().used_bytes, before);
}

TEST_P(DeviceTest, KeepsWhatItOnceGot) {
  auto stream = device_->CreateStream();
  ASSERT_TRUE(stream.ok());
  const auto allocate = [&] {
    ASSERT_TRUE((*stream)->AllocateMemory(64 << 20).ok());
    ASSERT_TRUE((*stream)->Synchronize().ok());
  };
  allocate();
  const int64_t reserved = device_->memory_usage().reserved_bytes;
  for (int i = 0; i < 20; ++i) allocate();
  EXPECT_EQ(device_->memory_usage().reserved_bytes, reserved);
}

TEST_P(DeviceTest, RefusesMoreMemoryThanThereIsAndServesOn) {
  auto stream = device_->CreateStream();
  ASSERT_TRUE(stream.ok());
  const auto total = static_cast<size_t>(device_->memory_usage().total_bytes);
  // More than the device has, and all it has in two halves that are too large.
  const auto refused = (*stream)->AllocateMemory(total + 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  {
    const auto half = (*stream)->AllocateMemory(total / 4 * 3);
    const auto too_much = (*stream)->AllocateMemory(total / 4 * 3);
    EXPECT_EQ(too_much.status().code(), absl::StatusCode::kResourceExhausted) << too_much.status();
    EXPECT_TRUE(device_->healthy());
    EXPECT_TRUE((*stream)->AllocateMemory(1 << 20).ok());
  }
  // Nor does this thread's next work fail for it: a stream is timed from its creation on.
  CopyThereAndBack(device_.get(), 1);
}

INSTANTIATE_TEST_SUITE_P(Catalog, DeviceTest, ::testing::ValuesIn(DeviceKinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace warpcall
