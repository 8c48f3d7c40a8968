#include "server/runtime/cuda/recordings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"

namespace warpcall {
namespace {

constexpr size_t kBytes = size_t{16} << 20;

class RecordingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto count = CudaDevice::Count();
    if (!count.ok() || *count == 0) GTEST_SKIP() << "there is no GPU here";
    auto device = CudaDevice::Open(0);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    stream_ = cuda::StreamHandle(stream);
    auto recordings = Recordings::Create(device_.get(), stream);
    ASSERT_TRUE(recordings.ok()) << recordings.status();
    recordings_ = *std::move(recordings);
  }

  // Polls the recordings' own state only: no call of the driver.
  void AwaitDone(int recording) const {
    const absl::Time give_up = absl::Now() + absl::Seconds(10);
    while (!recordings_->IsDone(recording)) ASSERT_LT(absl::Now(), give_up);
  }

  // Replays a recording that copies kBytes: each replay copies the current bytes, and takes more
  // than `ns_min`.
  void ExpectCopies(int recording, unsigned char* in, const unsigned char* out, int64_t ns_min) {
    for (int run = 1; run <= 20; ++run) {
      for (size_t i = 0; i < kBytes; ++i) in[i] = static_cast<unsigned char>(i * 7 + i / 251 + run);
      ASSERT_TRUE(recordings_->Replay(recording).ok());
      AwaitDone(recording);
      EXPECT_EQ(std::memcmp(in, out, kBytes), 0);
      EXPECT_GT(recordings_->Times(recording).kernel_ns, ns_min);
      EXPECT_LT(recordings_->Times(recording).kernel_ns, 1'000'000'000);
    }
  }

  std::unique_ptr<CudaDevice> device_;
  cuda::StreamHandle stream_;
  std::unique_ptr<Recordings> recordings_;
};

TEST_F(RecordingsTest, WhatAReplayWroteIsThereWhenItIsDone) {
  auto staging = device_->AllocateStaging(2 * kBytes);
  auto memory = device_->AllocateMemory(kBytes, stream_.get());
  ASSERT_TRUE(staging.ok() && memory.ok());
  auto* in = static_cast<unsigned char*>(staging->data());
  unsigned char* out = in + kBytes;
  const auto recording = recordings_->Record([&] {
    cudaMemcpyAsync(memory->data(), in, kBytes, cudaMemcpyDefault, stream_.get());
    cudaMemcpyAsync(out, memory->data(), kBytes, cudaMemcpyDefault, stream_.get());
    return absl::OkStatus();
  });
  ASSERT_TRUE(recording.ok()) << recording.status();
  // Twice over PCIe, which has at most 128 GB/s.
  ExpectCopies(*recording, in, out, 200'000);
}

// A kernel may begin before the previous one has ended: the stamps must enclose all of it, and the
// last one must come after its output.
TEST_F(RecordingsTest, AKernelThatIsLaunchedEarlyIsTimedWholeAndDoneWhenItSaysSo) {
  auto staging = device_->AllocateStaging(2 * kBytes);
  ASSERT_TRUE(staging.ok());
  auto* in = static_cast<unsigned char*>(staging->data());
  unsigned char* out = in + kBytes;
  const auto problem = MakeProblem(IdentityOp(), {{DataType::kFloat32, {int64_t{kBytes} / 4}}}, {});
  ASSERT_TRUE(problem.ok()) << problem.status();
  const auto plan = identity::VectorCopyRow().plan(*problem, {.device = &device_->properties()});
  ASSERT_TRUE(plan.ok()) << plan.status();
  Operands operands;
  operands.inputs.push_back(in);
  operands.outputs.push_back(out);
  const auto recording =
      recordings_->Record([&] { return (*plan)->Enqueue(operands, {.stream = stream_.get()}); });
  ASSERT_TRUE(recording.ok()) << recording.status();
  // There and back at once over PCIe, which has at most 128 GB/s each way.
  ExpectCopies(*recording, in, out, 100'000);
}

// Copies of odd sizes before and after the work; the times of all three.
TEST_F(RecordingsTest, SmallCopiesAreRecordedWithTheWork) {
  constexpr size_t kSizes[] = {16384, 37, 0, 4099};
  constexpr size_t kRoom = 32768;
  auto staging = device_->AllocateStaging(2 * kRoom);
  auto memory = device_->AllocateMemory(2 * kRoom, stream_.get());
  ASSERT_TRUE(staging.ok() && memory.ok());
  auto* const in = static_cast<unsigned char*>(staging->data());
  auto* const device = static_cast<char*>(memory->data());
  RecordedCopies copies;
  size_t at = 0;
  for (const size_t bytes : kSizes) {
    copies.inputs.push_back({device + at, in + at, bytes});
    copies.outputs.push_back({in + kRoom + at, device + kRoom + at, bytes});
    at += (bytes + 15) / 16 * 16;
  }
  const auto recording = recordings_->Record(
      [&] {
        cudaMemcpyAsync(device + kRoom, device, kRoom, cudaMemcpyDefault, stream_.get());
        return absl::OkStatus();
      },
      copies);
  ASSERT_TRUE(recording.ok()) << recording.status();
  for (int run = 1; run <= 20; ++run) {
    for (size_t i = 0; i < kRoom; ++i) in[i] = static_cast<unsigned char>(i * 7 + i / 251 + run);
    std::memset(in + kRoom, 0, kRoom);
    ASSERT_TRUE(recordings_->Replay(*recording).ok());
    AwaitDone(*recording);
    for (const RecordedCopies::Copy& copy : copies.outputs)
      EXPECT_EQ(std::memcmp(copy.to, static_cast<char*>(copy.to) - kRoom, copy.bytes), 0);
    const StreamTimes times = recordings_->Times(*recording);
    for (const int64_t ns : {times.h2d_ns, times.kernel_ns, times.d2h_ns}) {
      EXPECT_GE(ns, 0);
      EXPECT_LT(ns, 1'000'000'000);
    }
    EXPECT_GT(times.h2d_ns + times.d2h_ns, 500);  // PCIe takes longer
  }
  copies.inputs[0].bytes = RecordedCopies::kBytesMax + 1;
  EXPECT_EQ(recordings_->Record([] { return absl::OkStatus(); }, copies).status().code(),
            absl::StatusCode::kInvalidArgument);
  copies.inputs[0] = {device + 1, in, 16};
  EXPECT_EQ(recordings_->Record([] { return absl::OkStatus(); }, copies).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RecordingsTest, NothingTakesNoTime) {
  const auto nothing = recordings_->Record([] { return absl::OkStatus(); });
  ASSERT_TRUE(nothing.ok());
  std::vector<int64_t> times;
  for (int run = 0; run < 50; ++run) {
    ASSERT_TRUE(recordings_->Replay(*nothing).ok());
    AwaitDone(*nothing);
    times.push_back(recordings_->Times(*nothing).kernel_ns);
  }
  std::nth_element(times.begin(), times.begin() + 25, times.end());
  EXPECT_LT(times[25], 1'000);
}

TEST_F(RecordingsTest, SlotsAreLimitedAndCanBeUsedAgain) {
  std::vector<int> recordings;
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    const auto recording = recordings_->Record([] { return absl::OkStatus(); });
    status = recording.status();
    if (recording.ok()) recordings.push_back(*recording);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(recordings.size(), 64u);
  recordings_->Forget(recordings[7]);
  EXPECT_EQ(recordings_->Record([] { return absl::OkStatus(); }).value_or(-1), recordings[7]);
}

TEST_F(RecordingsTest, WhatCannotBeEnqueuedIsNotRecorded) {
  const auto failed = recordings_->Record([] { return absl::InvalidArgumentError("no"); });
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(recordings_->Record([] { return absl::OkStatus(); }).ok());
}

}  // namespace
}  // namespace warpcall
