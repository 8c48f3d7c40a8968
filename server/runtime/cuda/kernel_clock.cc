#include "server/runtime/cuda/kernel_clock.h"

#include <algorithm>
#include <numeric>

#include "kernels/cuda/stream_kernels.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

// Kernels of a job that is cut, for all but the largest jobs.
constexpr int kKernelsUsual = 64;
// Stamps back to back, of whose distances the median counts. Enqueuing them takes the host longer
// than the device unless that has something else to do first.
constexpr int kCalibrationKernels = 16;
constexpr size_t kBusyBytes = size_t{64} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<KernelClock>> KernelClock::Create(CudaDevice* device,
                                                                 cudaStream_t stream) {
  std::unique_ptr<KernelClock> clock(new KernelClock(device, stream));
  RETURN_IF_ERROR(clock->Begin(kKernelsUsual));
  RETURN_IF_ERROR(clock->Calibrate());
  return clock;
}

absl::Status KernelClock::Begin(int kernels) {
  WARPCALL_DCHECK(kernels >= 1, kernels);
  used_ = 0;
  const size_t bytes = 2 * sizeof(int64_t) * static_cast<size_t>(kernels);
  if (bytes <= memory_.bytes()) return absl::OkStatus();
  memory_ = Buffer();
  host_ = Buffer();
  ASSIGN_OR_RETURN(memory_, device_->AllocateMemory(bytes, stream_));
  ASSIGN_OR_RETURN(host_, device_->AllocateStaging(bytes));
  return absl::OkStatus();
}

absl::Status KernelClock::Stamp() {
  WARPCALL_CHECK((static_cast<size_t>(used_) + 1) * sizeof(int64_t) <= memory_.bytes(), used_,
                 memory_.bytes());
  return cuda::EnqueueTimestamp(stream_, static_cast<int64_t*>(memory_.data()) + used_++);
}

absl::Status KernelClock::Fetch(cudaStream_t stream) {
  return device_->Check(
      cudaMemcpyAsync(host_.data(), memory_.data(), sizeof(int64_t) * static_cast<size_t>(used_),
                      cudaMemcpyDeviceToHost, stream),
      "fetching the kernels' times");
}

std::vector<int64_t> KernelClock::Times() const {
  std::vector<int64_t> times;
  for (int i = 0; i + 1 < used_; i += 2)
    times.push_back(std::max<int64_t>(0, stamps()[i + 1] - stamps()[i] - gap_ns_));
  return times;
}

int64_t KernelClock::KernelNs() const {
  const std::vector<int64_t> times = Times();
  return std::accumulate(times.begin(), times.end(), int64_t{0});
}

absl::Status KernelClock::Calibrate() {
  Buffer busy;
  ASSIGN_OR_RETURN(busy, device_->AllocateMemory(kBusyBytes, stream_));
  // Twice: the first launch of a kernel loads it.
  for (int run = 0; run < 2; ++run) {
    RETURN_IF_ERROR(Begin(kCalibrationKernels));
    for (int i = 0; i < kCalibrationKernels; ++i)
      RETURN_IF_ERROR(device_->Check(cudaMemsetAsync(busy.data(), i, kBusyBytes, stream_),
                                     "keeping the device busy"));
    for (int i = 0; i < 2 * kCalibrationKernels; ++i) RETURN_IF_ERROR(Stamp());
    RETURN_IF_ERROR(Fetch(stream_));
    RETURN_IF_ERROR(device_->Check(cudaStreamSynchronize(stream_), "waiting for the device"));
  }
  std::vector<int64_t> gaps;
  for (int i = 0; i + 1 < used_; ++i) gaps.push_back(stamps()[i + 1] - stamps()[i]);
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<long>(gaps.size() / 2), gaps.end());
  gap_ns_ = gaps[gaps.size() / 2];
  return absl::OkStatus();
}

}  // namespace warpcall
