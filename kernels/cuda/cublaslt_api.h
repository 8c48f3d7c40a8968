// cuBLASLt, loaded at run time.
#pragma once

#include <cublasLt.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::cuda {

// NVIDIA's functions under their own names, less the prefix; see cublasLt.h.
struct CublasLtApi {
  // NOLINTBEGIN(readability-identifier-naming)
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtGetStatusName) GetStatusName;
  decltype(&cublasLtGetStatusString) GetStatusString;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) MatrixLayoutSetAttribute;
  // NOLINTEND(readability-identifier-naming)

  // OK, UNIMPLEMENTED for what the library says it does not support, RESOURCE_EXHAUSTED when memory
  // ran out, INTERNAL otherwise; the message says what was attempted (`what`) and the library's
  // name of the error.
  absl::Status ToStatus(cublasStatus_t status, absl::string_view what) const;
};

// Opens `file` and resolves every function. UNIMPLEMENTED says what is missing and why.
absl::StatusOr<CublasLtApi> OpenCublasLt(const char* file);

// The library of the CUDA version that this was built with, opened once per process. Thread-safe.
absl::StatusOr<const CublasLtApi*> LoadCublasLt();

}  // namespace warpcall::cuda
