// Device memory with a band of a pattern before and behind it, as Memory has on the host.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/kernels/device_array.h"

namespace warpcall::testing {

// Aligned as operands are and no better; null when `bytes` is 0. With WARPCALL_TEST_BANDS=0 it is
// an allocation of exactly `bytes`, for compute-sanitizer, which sees reads past the end as well.
// No call is ordered with a stream of its own: synchronise the device before and after.
class BandedArray {
 public:
  static absl::StatusOr<BandedArray> Create(size_t bytes);
  BandedArray() = default;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  absl::Status Fill(uint8_t byte) const;
  absl::Status CopyFrom(const void* host) const;  // bytes()
  absl::Status CopyTo(void* host) const;
  // INTERNAL, naming `what` and the byte, when something was written into a band.
  absl::Status CheckBands(absl::string_view what) const;

 private:
  DeviceArray allocation_;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  bool banded_ = false;
};

}  // namespace warpcall::testing
