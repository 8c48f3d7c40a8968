#include "tests/bench/cublaslt_direct.h"

#include <string>
#include <variant>
#include <vector>

#include "kernels/cuda/cuda_status.h"
#include "kernels/matmul/matmul.h"
#include "proto/common/status_macros.h"

namespace warpcall::bench {
namespace {

cudaDataType_t TypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return CUDA_R_16F;
    case DataType::kBFloat16:
      return CUDA_R_16BF;
    case DataType::kFloat32:
      return CUDA_R_32F;
  }
  AbortOnDataType(type);
}

}  // namespace

CublasLtDirect::~CublasLtDirect() {
  if (api_ == nullptr) return;
  for (cublasLtMatrixLayout_t layout : {a_, b_, c_})
    if (layout != nullptr) api_->MatrixLayoutDestroy(layout);
  if (description_ != nullptr) api_->MatmulDescDestroy(description_);
}

// Column-major c^T = b^T a^T: the second operand comes first.
absl::Status CublasLtDirect::Describe(const Problem& problem) {
  const cudaDataType_t type = TypeOf(problem.inputs[0].data_type);
  const bool tf32 = std::get<std::string>(problem.attributes[matmul::kPrecision]) == "tf32";
  RETURN_IF_ERROR(api_->ToStatus(
      api_->MatmulDescCreate(&description_,
                             tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "describing the product"));
  const auto flag = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    return api_->ToStatus(
        api_->MatmulDescSetAttribute(description_, attribute, &operation, sizeof(operation)),
        "transposing");
  };
  RETURN_IF_ERROR(
      flag(CUBLASLT_MATMUL_DESC_TRANSA, std::get<bool>(problem.attributes[matmul::kTransposeB])));
  RETURN_IF_ERROR(
      flag(CUBLASLT_MATMUL_DESC_TRANSB, std::get<bool>(problem.attributes[matmul::kTransposeA])));
  const auto layout = [&](const TensorSpec& spec, cublasLtMatrixLayout_t* out) {
    const auto rows = static_cast<uint64_t>(spec.dims[1]);
    const auto columns = static_cast<uint64_t>(spec.dims[0]);
    return api_->ToStatus(api_->MatrixLayoutCreate(out, type, rows, columns, spec.dims[1]),
                          "describing a matrix");
  };
  RETURN_IF_ERROR(layout(problem.inputs[1], &a_));
  RETURN_IF_ERROR(layout(problem.inputs[0], &b_));
  return layout(problem.outputs[0], &c_);
}

absl::Status CublasLtDirect::Matmul(const Operands& operands, void* workspace, cudaStream_t stream,
                                    const cublasLtMatmulAlgo_t& algorithm) const {
  const float one = 1;
  const float zero = 0;
  return api_->ToStatus(
      api_->Matmul(handle_, description_, &one, operands.inputs[1], a_, operands.inputs[0], b_,
                   &zero, operands.outputs[0], c_, operands.outputs[0], c_, &algorithm, workspace,
                   kWorkspaceBytes, stream),
      "multiplying");
}

absl::Status CublasLtDirect::Launch(const Operands& operands, void* workspace,
                                    cudaStream_t stream) const {
  return Matmul(operands, workspace, stream, best_);
}

absl::Status CublasLtDirect::Prepare(const Problem& problem, const Operands& operands,
                                     void* workspace, cudaStream_t stream) {
  constexpr int kHeuristics = 32;
  constexpr int kRepeats = 10;
  ASSIGN_OR_RETURN(api_, cuda::LoadCublasLt());
  ASSIGN_OR_RETURN(handle_, libraries_->CublasLt());
  RETURN_IF_ERROR(Describe(problem));
  cublasLtMatmulPreference_t preference = nullptr;
  RETURN_IF_ERROR(api_->ToStatus(api_->MatmulPreferenceCreate(&preference), "preferences"));
  const size_t limit = kWorkspaceBytes;
  api_->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                     sizeof(limit));
  std::vector<cublasLtMatmulHeuristicResult_t> found(kHeuristics);
  int count = 0;
  const absl::Status asked =
      api_->ToStatus(api_->MatmulAlgoGetHeuristic(handle_, description_, a_, b_, c_, c_, preference,
                                                  kHeuristics, found.data(), &count),
                     "asking for heuristics");
  api_->MatmulPreferenceDestroy(preference);
  RETURN_IF_ERROR(asked);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best_ms = 0;
  for (int i = 0; i < count; ++i) {
    if (!Matmul(operands, workspace, stream, found[i].algo).ok()) continue;
    cudaEventRecord(begin, stream);
    for (int k = 0; k < kRepeats; ++k)
      Matmul(operands, workspace, stream, found[i].algo).IgnoreError();
    cudaEventRecord(end, stream);
    RETURN_IF_ERROR(cuda::ToStatus(cudaEventSynchronize(end), "timing an algorithm"));
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (best_ms == 0 || ms < best_ms) {
      best_ms = ms;
      best_ = found[i].algo;
    }
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best_ms > 0 ? absl::OkStatus() : absl::UnimplementedError("cuBLASLt has no algorithm");
}

}  // namespace warpcall::bench
