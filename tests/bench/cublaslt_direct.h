// cuBLASLt as a program that only wants a matrix product calls it: the yardstick for the library's
// row, with code of its own.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/cuda/libraries.h"
#include "kernels/op.h"

namespace warpcall::bench {

// Runs matmul problems without batches.
class CublasLtDirect {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  explicit CublasLtDirect(cuda::Libraries* libraries) : libraries_(libraries) {}
  ~CublasLtDirect();

  // Gets algorithms from the heuristic, times each, keeps the fastest.
  absl::Status Prepare(const Problem& problem, const Operands& operands, void* workspace,
                       cudaStream_t stream);
  absl::Status Launch(const Operands& operands, void* workspace, cudaStream_t stream) const;

 private:
  absl::Status Describe(const Problem& problem);
  absl::Status Matmul(const Operands& operands, void* workspace, cudaStream_t stream,
                      const cublasLtMatmulAlgo_t& algorithm) const;

  cuda::Libraries* const libraries_;
  const cuda::CublasLtApi* api_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t c_ = nullptr;
  cublasLtMatmulAlgo_t best_ = {};
};

}  // namespace warpcall::bench
