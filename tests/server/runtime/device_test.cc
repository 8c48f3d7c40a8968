// What the engine relies on in every Device, run on each kind that this build has.
#include "server/runtime/device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "server/runtime/cpu/cpu_device.h"

namespace warpcall {
namespace {

struct Kind {
  const char* name;
  std::unique_ptr<Device> (*open)();
};

class DeviceTest : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Device> device_ = GetParam().open();
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

TEST_P(DeviceTest, CopiesThereAndBackInOrder) {
  auto stream = device_->CreateStream();
  ASSERT_TRUE(stream.ok());
  auto staging = device_->AllocateStaging(2 << 20);
  auto memory = device_->AllocateMemory(1 << 20);
  ASSERT_TRUE(staging.ok() && memory.ok());
  auto* in = static_cast<unsigned char*>(staging->data());
  unsigned char* out = in + (1 << 20);
  for (int i = 0; i < 1 << 20; ++i) in[i] = static_cast<unsigned char>(i * 7);
  EXPECT_TRUE((*stream)->Mark(Milestone::kStart).ok());
  EXPECT_TRUE((*stream)->CopyToDevice(memory->data(), in, 1 << 20).ok());
  EXPECT_TRUE((*stream)->Mark(Milestone::kInputsReady).ok());
  EXPECT_TRUE((*stream)->Mark(Milestone::kKernelDone).ok());
  EXPECT_TRUE((*stream)->CopyToStaging(out, memory->data(), 1 << 20).ok());
  EXPECT_TRUE((*stream)->Mark(Milestone::kOutputsReady).ok());
  ASSERT_TRUE((*stream)->Synchronize().ok());
  EXPECT_EQ(std::memcmp(in, out, 1 << 20), 0);
  EXPECT_GT((*stream)->ElapsedNs(Milestone::kStart, Milestone::kInputsReady), 0);
  EXPECT_GE((*stream)->ElapsedNs(Milestone::kInputsReady, Milestone::kKernelDone), 0);
  EXPECT_GT((*stream)->ElapsedNs(Milestone::kKernelDone, Milestone::kOutputsReady), 0);
}

TEST_P(DeviceTest, CountsItsMemoryAndGivesItBack) {
  const int64_t before = device_->memory_usage().used_bytes;
  {
    auto memory = device_->AllocateMemory(3 << 20);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(device_->memory_usage().used_bytes, before + (3 << 20));
    Buffer moved = *std::move(memory);
    EXPECT_EQ(moved.bytes(), size_t{3} << 20);
  }
  EXPECT_EQ(device_->memory_usage().used_bytes, before);
}

TEST_P(DeviceTest, RefusesMoreMemoryThanThereIsAndServesOn) {
  const auto refused =
      device_->AllocateMemory(static_cast<size_t>(device_->memory_usage().total_bytes) + 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(device_->healthy());
  EXPECT_TRUE(device_->AllocateMemory(1 << 20).ok());
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceTest,
                         ::testing::Values(Kind{"cpu", [] {
                                                  return std::unique_ptr<Device>(
                                                      std::make_unique<CpuDevice>(2));
                                                }}));

}  // namespace
}  // namespace warpcall
