#include "kernels/cuda/cuda_status.h"

#include <atomic>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace warpcall::cuda {
namespace {

struct Known {
  cudaError_t error;
  bool sticky;
};

constexpr Known kKnown[] = {
    {cudaErrorMemoryAllocation, false},
    {cudaErrorLaunchOutOfResources, false},
    {cudaErrorInvalidConfiguration, false},
    {cudaErrorInvalidValue, false},
    {cudaErrorNoKernelImageForDevice, false},
    {cudaErrorECCUncorrectable, true},
    {cudaErrorNvlinkUncorrectable, true},
    {cudaErrorContained, true},
    {cudaErrorIllegalAddress, true},
    {cudaErrorLaunchTimeout, true},
    {cudaErrorAssert, true},
    {cudaErrorHardwareStackError, true},
    {cudaErrorIllegalInstruction, true},
    {cudaErrorMisalignedAddress, true},
    {cudaErrorInvalidAddressSpace, true},
    {cudaErrorInvalidPc, true},
    {cudaErrorLaunchFailure, true},
    {cudaErrorTensorMemoryLeak, true},
    {cudaErrorMpsClientTerminated, true},
};

// Telemetry only: nothing reads it but ErrorCounts. The last is for all other codes.
std::atomic<int64_t> counts[std::size(kKnown) + 1];

size_t IndexOf(cudaError_t error) {
  size_t i = 0;
  while (i < std::size(kKnown) && kKnown[i].error != error) ++i;
  return i;
}

absl::StatusCode CodeOf(cudaError_t error) {
  if (IsSticky(error)) return absl::StatusCode::kUnavailable;
  if (error == cudaErrorMemoryAllocation) return absl::StatusCode::kResourceExhausted;
  return absl::StatusCode::kInternal;
}

}  // namespace

bool IsSticky(cudaError_t error) {
  const size_t i = IndexOf(error);
  return i < std::size(kKnown) && kKnown[i].sticky;
}

absl::Status ToStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  counts[IndexOf(error)].fetch_add(1, std::memory_order_relaxed);
  // Clears the error, or the next launch that checks the thread's last error would fail.
  if (!IsSticky(error)) (void)cudaGetLastError();
  return absl::Status(CodeOf(error), absl::StrCat(what, ": ", cudaGetErrorName(error), ": ",
                                                  cudaGetErrorString(error)));
}

std::vector<ErrorCount> ErrorCounts() {
  std::vector<ErrorCount> result;
  for (size_t i = 0; i < std::size(kKnown); ++i)
    result.push_back({cudaGetErrorName(kKnown[i].error), counts[i].load()});
  result.push_back({"other", counts[std::size(kKnown)].load()});
  return result;
}

const char* ToolkitVersion() {
  static const std::string* const version = new std::string(
      absl::StrCat(CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10));
  return version->c_str();
}

}  // namespace warpcall::cuda
