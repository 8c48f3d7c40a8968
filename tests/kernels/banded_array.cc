#include "tests/kernels/banded_array.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <string>

#include "kernels/cuda/cuda_status.h"
#include "proto/common/status_macros.h"
#include "tests/kernels/run_row.h"

namespace warpcall::testing {
namespace {

using cuda::ToStatus;

bool BandsAreWanted() {
  const char* const text = std::getenv("WARPCALL_TEST_BANDS");
  return text == nullptr || std::string(text) != "0";
}

absl::Status CheckDeviceBand(const uint8_t* band, absl::string_view side, absl::string_view what) {
  uint8_t copy[kBandBytes];
  RETURN_IF_ERROR(
      ToStatus(cudaMemcpy(copy, band, kBandBytes, cudaMemcpyDeviceToHost), "reading a band"));
  return CheckBand(copy, side, what);
}

}  // namespace

absl::StatusOr<BandedArray> BandedArray::Create(size_t bytes) {
  BandedArray array;
  if (bytes == 0) return array;
  array.bytes_ = bytes;
  array.banded_ = BandsAreWanted();
  // One band more, to choose the alignment in.
  const size_t total = bytes + (array.banded_ ? 3 * kBandBytes : 0);
  ASSIGN_OR_RETURN(array.allocation_, DeviceArray::Create(total));
  array.data_ = static_cast<uint8_t*>(array.allocation_.data());
  if (!array.banded_) return array;
  RETURN_IF_ERROR(ToStatus(cudaMemset(array.data_, kBandPattern, total), "filling the bands"));
  array.data_ += kBandBytes;
  if (reinterpret_cast<uintptr_t>(array.data_) % (2 * kOperandAlignmentBytes) == 0)
    array.data_ += kBandBytes;
  return array;
}

absl::Status BandedArray::Fill(uint8_t byte) const {
  if (bytes_ == 0) return absl::OkStatus();
  return ToStatus(cudaMemset(data_, byte, bytes_), "poisoning");
}

absl::Status BandedArray::CopyFrom(const void* host) const {
  if (bytes_ == 0) return absl::OkStatus();
  return ToStatus(cudaMemcpy(data_, host, bytes_, cudaMemcpyHostToDevice), "copying in");
}

absl::Status BandedArray::CopyTo(void* host) const {
  if (bytes_ == 0) return absl::OkStatus();
  return ToStatus(cudaMemcpy(host, data_, bytes_, cudaMemcpyDeviceToHost), "copying out");
}

absl::Status BandedArray::CheckBands(absl::string_view what) const {
  if (!banded_) return absl::OkStatus();
  RETURN_IF_ERROR(CheckDeviceBand(data_ - kBandBytes, "before", what));
  return CheckDeviceBand(data_ + bytes_, "behind", what);
}

}  // namespace warpcall::testing
