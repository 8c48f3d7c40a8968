// Device memory of a test or benchmark.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"

namespace warpcall::testing {

// An allocation of its own, of exactly `bytes`, so that compute-sanitizer sees the first byte past
// its end; move-only; null when `bytes` is 0.
class DeviceArray {
 public:
  static absl::StatusOr<DeviceArray> Create(size_t bytes) {
    DeviceArray array;
    if (bytes == 0) return array;
    absl::Status status = cuda::ToStatus(cudaMalloc(&array.data_, bytes),
                                         absl::StrCat("allocating ", bytes, " bytes"));
    if (!status.ok()) return status;
    return array;
  }
  DeviceArray() = default;
  DeviceArray(DeviceArray&& other) noexcept { std::swap(data_, other.data_); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~DeviceArray() { cudaFree(data_); }

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace warpcall::testing
