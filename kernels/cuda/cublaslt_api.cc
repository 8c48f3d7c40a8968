#include "kernels/cuda/cublaslt_api.h"

#include "absl/strings/str_cat.h"
#include "kernels/cuda/shared_library.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {
namespace {

constexpr char kFile[] = "libcublasLt.so.13";
static_assert(CUBLAS_VER_MAJOR == 13, "the file's number and the header's must be the same");

absl::StatusCode CodeOf(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return absl::StatusCode::kUnimplemented;
    case CUBLAS_STATUS_ALLOC_FAILED:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status CublasLtApi::ToStatus(cublasStatus_t status, absl::string_view what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::Status(CodeOf(status), absl::StrCat(what, ": ", GetStatusName(status), ": ",
                                                   GetStatusString(status)));
}

absl::StatusOr<CublasLtApi> OpenCublasLt(const char* file) {
  ASSIGN_OR_RETURN(const SharedLibrary library,
                   SharedLibrary::Open(file, "the matmul row cublaslt needs it"));
  CublasLtApi api;
  RETURN_IF_ERROR(library.Resolve("cublasLtCreate", &api.Create));
  RETURN_IF_ERROR(library.Resolve("cublasLtDestroy", &api.Destroy));
  RETURN_IF_ERROR(library.Resolve("cublasLtGetStatusName", &api.GetStatusName));
  RETURN_IF_ERROR(library.Resolve("cublasLtGetStatusString", &api.GetStatusString));
  RETURN_IF_ERROR(library.Resolve("cublasLtMatmul", &api.Matmul));
  RETURN_IF_ERROR(library.Resolve("cublasLtMatmulAlgoGetHeuristic", &api.MatmulAlgoGetHeuristic));
  RETURN_IF_ERROR(library.Resolve("cublasLtMatmulDescCreate", &api.MatmulDescCreate));
  RETURN_IF_ERROR(library.Resolve("cublasLtMatmulDescDestroy", &api.MatmulDescDestroy));
  RETURN_IF_ERROR(library.Resolve("cublasLtMatmulDescSetAttribute", &api.MatmulDescSetAttribute));
  RETURN_IF_ERROR(library.Resolve("cublasLtMatmulPreferenceCreate", &api.MatmulPreferenceCreate));
  RETURN_IF_ERROR(library.Resolve("cublasLtMatmulPreferenceDestroy", &api.MatmulPreferenceDestroy));
  RETURN_IF_ERROR(
      library.Resolve("cublasLtMatmulPreferenceSetAttribute", &api.MatmulPreferenceSetAttribute));
  RETURN_IF_ERROR(library.Resolve("cublasLtMatrixLayoutCreate", &api.MatrixLayoutCreate));
  RETURN_IF_ERROR(library.Resolve("cublasLtMatrixLayoutDestroy", &api.MatrixLayoutDestroy));
  RETURN_IF_ERROR(
      library.Resolve("cublasLtMatrixLayoutSetAttribute", &api.MatrixLayoutSetAttribute));
  return api;
}

absl::StatusOr<const CublasLtApi*> LoadCublasLt() {
  static const absl::StatusOr<CublasLtApi>& api =
      *new absl::StatusOr<CublasLtApi>(OpenCublasLt(kFile));
  if (!api.ok()) return api.status();
  return &*api;
}

}  // namespace warpcall::cuda
