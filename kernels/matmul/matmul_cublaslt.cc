// cuBLASLt with the fastest of the algorithms that its heuristic proposes, measured when a problem
// is first prepared and remembered.
#include "kernels/matmul/matmul_cublaslt.h"

#include <array>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cublaslt_api.h"
#include "kernels/cuda/fastest.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries.h"
#include "kernels/matmul/cublaslt_call.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_tiling.h"
#include "proto/common/status_macros.h"

namespace warpcall::matmul {
namespace {

using cuda::CublasLtApi;

constexpr int kAlgorithmsMax = 16;
constexpr int64_t kSizeMax = std::numeric_limits<int32_t>::max();
// Each call costs the CPU some 3 us: beyond this the lane would be blocked for tens of ms.
constexpr int64_t kCallsMax = 4096;

// Calls of the library that create something return it through a pointer; these own it.
template <auto Destroy>
struct Deleter {
  template <typename T>
  void operator()(T* descriptor) const {
    ((*cuda::LoadCublasLt())->*Destroy)(descriptor);
  }
};
using Layout =
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Deleter<&CublasLtApi::MatrixLayoutDestroy>>;
using Description =
    std::unique_ptr<cublasLtMatmulDescOpaque_t, Deleter<&CublasLtApi::MatmulDescDestroy>>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t,
                                   Deleter<&CublasLtApi::MatmulPreferenceDestroy>>;

// A call, described.
struct Multiplication {
  const CublasLtApi* api;
  cublasLtHandle_t handle;
  Description description;
  Layout first;
  Layout second;
  Layout output;
};

// Addresses of the matrices of one call.
struct Addresses {
  const char* a;
  const char* b;
  char* c;
};

// Index of the input that holds the bias, if there is one.
constexpr size_t kBias = 2;

Addresses AddressesOf(const Operands& operands, const Offsets& offsets, const CublasLtCall& call) {
  const auto bytes = static_cast<int64_t>(ElementBytes(call.second.data_type));
  const auto output_bytes = static_cast<int64_t>(ElementBytes(call.output.data_type));
  return {static_cast<const char*>(operands.inputs[0]) + offsets.a * bytes,
          static_cast<const char*>(operands.inputs[1]) + offsets.b * bytes,
          static_cast<char*>(operands.outputs[0]) + offsets.c * output_bytes};
}

cudaDataType_t ToCuda(DataType type) {
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

absl::StatusOr<Layout> MakeLayout(const CublasLtApi& api, const CublasLtCall& call,
                                  const CublasLtMatrix& matrix) {
  cublasLtMatrixLayout_t created = nullptr;
  RETURN_IF_ERROR(api.ToStatus(
      api.MatrixLayoutCreate(&created, ToCuda(matrix.data_type), static_cast<uint64_t>(matrix.rows),
                             static_cast<uint64_t>(matrix.columns), matrix.leading_dimension),
      "describing a matrix"));
  Layout layout(created);
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
    return api.ToStatus(api.MatrixLayoutSetAttribute(created, attribute, &value, sizeof(value)),
                        "describing a batch of matrices");
  };
  RETURN_IF_ERROR(set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(call.batch_count)));
  RETURN_IF_ERROR(set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride));
  return layout;
}

// With a bias that is not null, it is added to every row of c: a column of the transposed output.
absl::StatusOr<Description> MakeDescription(const CublasLtApi& api, const CublasLtCall& call,
                                            const void* bias) {
  cublasLtMatmulDesc_t created = nullptr;
  RETURN_IF_ERROR(api.ToStatus(
      api.MatmulDescCreate(&created, call.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                           CUDA_R_32F),
      "describing a matmul"));
  Description description(created);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    return api.ToStatus(api.MatmulDescSetAttribute(created, attribute, &value, sizeof(value)),
                        "describing a matmul's transpositions and bias");
  };
  const auto operation = [](const CublasLtMatrix& matrix) -> int32_t {
    return matrix.transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, operation(call.first)));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB, operation(call.second)));
  if (bias == nullptr) return description;
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  return description;
}

absl::StatusOr<Preference> MakePreference(const CublasLtApi& api, const CublasLtCall& call) {
  cublasLtMatmulPreference_t created = nullptr;
  RETURN_IF_ERROR(
      api.ToStatus(api.MatmulPreferenceCreate(&created), "describing what is preferred"));
  Preference preference(created);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return api.ToStatus(api.MatmulPreferenceSetAttribute(created, attribute, &value, sizeof(value)),
                        "describing what is preferred");
  };
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kCublasltWorkspaceBytes}));
  // Sums that are split have their parts added in float32: the other schemes round every part to
  // the type of the output.
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                      static_cast<uint32_t>(call.output.data_type == DataType::kFloat32
                                                ? CUBLASLT_REDUCTION_SCHEME_MASK
                                                : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
  const auto alignment = [](const CublasLtMatrix& matrix) {
    return static_cast<uint32_t>(matrix.alignment_bytes);
  };
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(call.first)));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(call.second)));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(call.output)));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(call.output)));
  return preference;
}

// The stream and the workspace of a multiplication, and its description.
struct Site {
  cudaStream_t stream;
  void* workspace;
  cublasLtMatmulDesc_t description;  // the call's own, or a copy with a bias of its own
};

absl::Status Multiply(const Multiplication& call, const cublasLtMatmulAlgo_t& algorithm,
                      const Addresses& at, const Site& site) {
  constexpr float kAlpha = 1;
  constexpr float kBeta = 0;  // c is not read
  return call.api->ToStatus(
      call.api->Matmul(call.handle, site.description, &kAlpha, at.b, call.first.get(), at.a,
                       call.second.get(), &kBeta, at.c, call.output.get(), at.c, call.output.get(),
                       &algorithm, site.workspace, kCublasltWorkspaceBytes, site.stream),
      "cublasLtMatmul");
}

// Returns the heuristic's algorithms, best first. UNIMPLEMENTED if it proposes none.
absl::StatusOr<std::vector<cublasLtMatmulAlgo_t>> Propose(const Multiplication& plan,
                                                          const CublasLtCall& call) {
  ASSIGN_OR_RETURN(const Preference preference, MakePreference(*plan.api, call));
  std::array<cublasLtMatmulHeuristicResult_t, kAlgorithmsMax> results{};
  int count = 0;
  RETURN_IF_ERROR(plan.api->ToStatus(
      plan.api->MatmulAlgoGetHeuristic(plan.handle, plan.description.get(), plan.first.get(),
                                       plan.second.get(), plan.output.get(), plan.output.get(),
                                       preference.get(), kAlgorithmsMax, results.data(), &count),
      "asking cuBLASLt for algorithms"));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[i].algo);
  }
  if (!algorithms.empty()) return algorithms;
  return absl::UnimplementedError(absl::StrCat(
      "cuBLASLt has no ", DataTypeName(call.second.data_type), " matmul of ", call.second.rows, "x",
      call.second.columns, " by ", call.first.rows, "x", call.first.columns, ", ", call.batch_count,
      " times, within ", kCublasltWorkspaceBytes >> 20, " MiB of workspace"));
}

absl::StatusOr<Multiplication> Describe(const CublasLtCall& call, cuda::Libraries* libraries,
                                        const void* bias) {
  Multiplication described = {};
  ASSIGN_OR_RETURN(described.api, cuda::LoadCublasLt());
  ASSIGN_OR_RETURN(described.handle, libraries->CublasLt());
  ASSIGN_OR_RETURN(described.description, MakeDescription(*described.api, call, bias));
  ASSIGN_OR_RETURN(described.first, MakeLayout(*described.api, call, call.first));
  ASSIGN_OR_RETURN(described.second, MakeLayout(*described.api, call, call.second));
  ASSIGN_OR_RETURN(described.output, MakeLayout(*described.api, call, call.output));
  return described;
}

}  // namespace

absl::Status CheckCublaslt(const Problem& problem) {
  RETURN_IF_ERROR(cuda::LoadCublasLt().status());
  if (NothingToSum(problem)) return absl::OkStatus();
  const CublasLtCalls calls = MakeCublasLtCalls(problem);
  const int64_t m = calls.outer.m;
  const int64_t n = calls.outer.n;
  const int64_t k = calls.outer.k;
  if (m > kSizeMax || n > kSizeMax || k > kSizeMax || calls.call.batch_count > kSizeMax)
    return absl::UnimplementedError(absl::StrCat("m, n, k and a batch dimension may be ", kSizeMax,
                                                 " at most, got m ", m, ", n ", n, ", k ", k,
                                                 ", batch ", calls.call.batch_count));
  if (calls.outer.batches() > kCallsMax)
    return absl::UnimplementedError(absl::StrCat("batch dimensions that broadcast this way take ",
                                                 calls.outer.batches(), " calls of cuBLASLt; ",
                                                 kCallsMax, " are allowed"));
  return absl::OkStatus();
}

namespace {

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  return CheckCublaslt(problem);
}

// Makes one call for each batch that cuBLASLt cannot walk by itself.
class CublasltPlan final : public Plan {
 public:
  struct Way {
    cublasLtMatmulAlgo_t algorithm;
    bool has_bias;
  };

  CublasltPlan(CublasLtCalls calls, Multiplication described, const Way& way)
      : Plan({.workspace_bytes = kCublasltWorkspaceBytes, .may_be_replayed = true}),
        calls_(std::move(calls)),
        described_(std::move(described)),
        way_(way) {}

  absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
    // The description holds the address of the bias, and lanes share the plan's own description.
    Description with_bias;
    if (way_.has_bias) {
      ASSIGN_OR_RETURN(with_bias,
                       MakeDescription(*described_.api, calls_.call, operands.inputs[kBias]));
    }
    const Site site = {cuda::StreamOf(context), context.workspace,
                       way_.has_bias ? with_bias.get() : described_.description.get()};
    for (int64_t i = 0, batches = calls_.outer.batches(); i < batches; ++i)
      RETURN_IF_ERROR(Multiply(described_, way_.algorithm,
                               AddressesOf(operands, calls_.outer.BatchOffsets(i), calls_.call),
                               site));
    return absl::OkStatus();
  }

 private:
  // cuBLASLt reports neither grid nor block, nor whether a call adds a kernel that sums the parts
  // of a split sum. The shape gives the number of calls.
  absl::StatusOr<LaunchShape> AskShape() const override {
    return LaunchShape{.gpu_kernels = static_cast<int32_t>(calls_.outer.batches())};
  }

  const CublasLtCalls calls_;
  const Multiplication described_;
  const Way way_;
};

absl::StatusOr<PlanPtr> PlanProduct(const Problem& problem, const PlanContext& context,
                                    bool has_bias) {
  CublasLtCalls calls = MakeCublasLtCalls(problem);
  // Without operands yet, an address stands in that has their alignment.
  const void* bias = nullptr;
  if (has_bias)
    bias = context.tryout != nullptr ? context.tryout->operands->inputs[kBias]
                                     : reinterpret_cast<const void*>(kOperandAlignmentBytes);
  ASSIGN_OR_RETURN(Multiplication described, Describe(calls.call, context.libraries, bias));
  ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulAlgo_t> algorithms,
                   Propose(described, calls.call));
  int fastest = 0;
  if (const Tryout* const tryout = context.tryout; tryout != nullptr) {
    ASSIGN_OR_RETURN(void* const workspace, tryout->workspace(kCublasltWorkspaceBytes));
    const Site site = {static_cast<cudaStream_t>(tryout->stream), workspace,
                       described.description.get()};
    const Addresses at = AddressesOf(*tryout->operands, calls.outer.BatchOffsets(0), calls.call);
    ASSIGN_OR_RETURN(
        fastest, cuda::FindFastest(static_cast<int>(algorithms.size()), site.stream, [&](int i) {
          return Multiply(described, algorithms[i], at, site);
        }));
  }
  return std::make_shared<const CublasltPlan>(std::move(calls), std::move(described),
                                              CublasltPlan::Way{algorithms[fastest], has_bias});
}

absl::StatusOr<PlanPtr> MakeCublasltPlan(const Problem& problem, const PlanContext& context) {
  if (NothingToSum(problem)) return PlanOfZeros(problem);
  return PlanProduct(problem, context, /*has_bias=*/false);
}

}  // namespace

absl::StatusOr<PlanPtr> PlanCublasltSums(const Problem& problem, const PlanContext& context) {
  return PlanProduct(problem, context, /*has_bias=*/false);
}

absl::StatusOr<PlanPtr> PlanCublasltWithBias(const Problem& problem, const PlanContext& context) {
  return PlanProduct(problem, context, /*has_bias=*/true);
}

Implementation CublasltRow() {
  return {.name = "cublaslt",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCuda,
          .summary = "cuBLASLt, the fastest of the algorithms that its heuristic proposes",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .slow_to_plan = true,
          .plan = MakeCublasltPlan};
}

}  // namespace warpcall::matmul
