// cuDNN, loaded at run time.
#pragma once

#include <cudnn.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/common/data_type.h"

namespace warpcall::cuda {

// NVIDIA's functions under their own names, less the prefix; see cudnn_graph.h and cudnn_ops.h.
struct CudnnApi {
  // NOLINTBEGIN(readability-identifier-naming)
  decltype(&cudnnCreate) Create;
  decltype(&cudnnDestroy) Destroy;
  decltype(&cudnnSetStream) SetStream;
  decltype(&cudnnGetErrorString) GetErrorString;
  decltype(&cudnnGetLastErrorString) GetLastErrorString;
  decltype(&cudnnCreateTensorDescriptor) CreateTensorDescriptor;
  decltype(&cudnnDestroyTensorDescriptor) DestroyTensorDescriptor;
  decltype(&cudnnSetTensor4dDescriptor) SetTensor4dDescriptor;
  decltype(&cudnnSoftmaxForward) SoftmaxForward;
  decltype(&cudnnBackendCreateDescriptor) BackendCreateDescriptor;
  decltype(&cudnnBackendDestroyDescriptor) BackendDestroyDescriptor;
  decltype(&cudnnBackendSetAttribute) BackendSetAttribute;
  decltype(&cudnnBackendGetAttribute) BackendGetAttribute;
  decltype(&cudnnBackendFinalize) BackendFinalize;
  decltype(&cudnnBackendExecute) BackendExecute;
  // NOLINTEND(readability-identifier-naming)

  // OK, UNIMPLEMENTED for what the library says it does not support, RESOURCE_EXHAUSTED when memory
  // ran out, INTERNAL otherwise; the message says what was attempted (`what`), the library's name
  // of the error and its own last words about it.
  absl::Status ToStatus(cudnnStatus_t status, absl::string_view what) const;
};

constexpr cudnnDataType_t ToCudnn(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return CUDNN_DATA_HALF;
    case DataType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    case DataType::kFloat32:
      return CUDNN_DATA_FLOAT;
  }
  AbortOnDataType(type);
}

// Opens `file` and resolves every function. UNIMPLEMENTED says what is missing and why.
absl::StatusOr<CudnnApi> OpenCudnn(const char* file);

// The library of the major version that this was built with, opened once per process. Thread-safe.
absl::StatusOr<const CudnnApi*> LoadCudnn();

}  // namespace warpcall::cuda
