// The descriptors of cuDNN's graph API: created, given attributes, finalized, then constant.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/cudnn_api.h"

namespace warpcall::cuda {

class CudnnDescriptor {
 public:
  // `what` opens the messages of all errors: "a tensor". REQUIRES: it is a constant of the program.
  static absl::StatusOr<CudnnDescriptor> Create(cudnnBackendDescriptorType_t type,
                                                const char* what);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : api_(other.api_),
        descriptor_(std::exchange(other.descriptor_, nullptr)),
        what_(other.what_) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  ~CudnnDescriptor();

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  // `type` is the attribute's, and T what cudnn_graph.h says stores it.
  template <typename T>
  absl::Status Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   absl::Span<const T> values) {
    return SetAny(name, type, static_cast<int64_t>(values.size()), values.data());
  }
  template <typename T>
  absl::Status Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   const T& value) {
    return SetAny(name, type, 1, &value);
  }
  absl::Status Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    return SetAny(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }

  absl::Status Finalize();

  absl::StatusOr<int64_t> GetInt64(cudnnBackendAttributeName_t name) const;
  // Fills descriptors that exist already with the first of the attribute's; how many it filled.
  absl::StatusOr<int64_t> GetDescriptors(cudnnBackendAttributeName_t name,
                                         absl::Span<cudnnBackendDescriptor_t> descriptors) const;

 private:
  CudnnDescriptor(const CudnnApi* api, cudnnBackendDescriptor_t descriptor, const char* what)
      : api_(api), descriptor_(descriptor), what_(what) {}
  absl::Status SetAny(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      int64_t count, const void* values);

  const CudnnApi* api_;
  cudnnBackendDescriptor_t descriptor_;
  const char* what_;
};

}  // namespace warpcall::cuda
