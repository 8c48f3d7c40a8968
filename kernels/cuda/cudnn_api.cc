#include "kernels/cuda/cudnn_api.h"

#include "absl/strings/str_cat.h"
#include "kernels/cuda/shared_library.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {
namespace {

constexpr char kFile[] = "libcudnn.so.9";
static_assert(CUDNN_MAJOR == 9, "the file's number and the header's must be the same");

// cuDNN 9 numbers its errors by thousands, one for each category (cudnnStatus_t in cudnn_graph.h).
absl::StatusCode CodeOf(cudnnStatus_t status) {
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
    return absl::StatusCode::kUnimplemented;
  const bool memory_ran_out = status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                              status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  return memory_ran_out ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal;
}

}  // namespace

absl::Status CudnnApi::ToStatus(cudnnStatus_t status, absl::string_view what) const {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  char details[512] = "";
  GetLastErrorString(details, sizeof(details));
  details[sizeof(details) - 1] = '\0';
  return absl::Status(CodeOf(status), absl::StrCat(what, ": ", GetErrorString(status),
                                                   *details == '\0' ? "" : ": ", details));
}

absl::StatusOr<CudnnApi> OpenCudnn(const char* file) {
  ASSIGN_OR_RETURN(const SharedLibrary library,
                   SharedLibrary::Open(file,
                                       "the rows cudnn_pointwise of gelu, cudnn_softmax of "
                                       "softmax and cudnn_norm of the norms need it"));
  CudnnApi api;
  RETURN_IF_ERROR(library.Resolve("cudnnCreate", &api.Create));
  RETURN_IF_ERROR(library.Resolve("cudnnDestroy", &api.Destroy));
  RETURN_IF_ERROR(library.Resolve("cudnnSetStream", &api.SetStream));
  RETURN_IF_ERROR(library.Resolve("cudnnGetErrorString", &api.GetErrorString));
  RETURN_IF_ERROR(library.Resolve("cudnnGetLastErrorString", &api.GetLastErrorString));
  RETURN_IF_ERROR(library.Resolve("cudnnCreateTensorDescriptor", &api.CreateTensorDescriptor));
  RETURN_IF_ERROR(library.Resolve("cudnnDestroyTensorDescriptor", &api.DestroyTensorDescriptor));
  RETURN_IF_ERROR(library.Resolve("cudnnSetTensor4dDescriptor", &api.SetTensor4dDescriptor));
  RETURN_IF_ERROR(library.Resolve("cudnnSoftmaxForward", &api.SoftmaxForward));
  RETURN_IF_ERROR(library.Resolve("cudnnBackendCreateDescriptor", &api.BackendCreateDescriptor));
  RETURN_IF_ERROR(library.Resolve("cudnnBackendDestroyDescriptor", &api.BackendDestroyDescriptor));
  RETURN_IF_ERROR(library.Resolve("cudnnBackendSetAttribute", &api.BackendSetAttribute));
  RETURN_IF_ERROR(library.Resolve("cudnnBackendGetAttribute", &api.BackendGetAttribute));
  RETURN_IF_ERROR(library.Resolve("cudnnBackendFinalize", &api.BackendFinalize));
  RETURN_IF_ERROR(library.Resolve("cudnnBackendExecute", &api.BackendExecute));
  return api;
}

absl::StatusOr<const CudnnApi*> LoadCudnn() {
  static const absl::StatusOr<CudnnApi>& api = *new absl::StatusOr<CudnnApi>(OpenCudnn(kFile));
  if (!api.ok()) return api.status();
  return &*api;
}

}  // namespace warpcall::cuda
