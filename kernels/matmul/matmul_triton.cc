// matmul_triton.py's kernels, compiled when this was built.
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_tiling.h"
#include "kernels/triton/row.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::matmul {
namespace {

constexpr char kOp[] = "matmul";

const char* LayoutOf(const Shape& shape) {
  const bool a_by_column = shape.a_column_stride != 1;
  const bool b_by_column = shape.b_column_stride != 1;
  if (a_by_column) return b_by_column ? "tt" : "tn";
  return b_by_column ? "nt" : "nn";
}

const std::string& PrecisionOf(const Problem& problem) {
  return std::get<std::string>(problem.attributes[kPrecision]);
}

// UNIMPLEMENTED when batches are not evenly apart. REQUIRES: HasSums(problem).
absl::StatusOr<triton::Order> OrderFor(const Problem& problem) {
  WARPCALL_DCHECK(HasSums(problem));
  const Shape shape = DecodeShape(problem);
  if (shape.batch.size() > 1)
    return absl::UnimplementedError(
        absl::StrCat("triton_matmul takes batches that are evenly apart; here they are so in ",
                     shape.batch.size(), " dimensions"));
  const BatchDim batch = shape.batch.empty() ? BatchDim{1, 0, 0, 0} : shape.batch.front();
  return triton::Order{.traits = {{"layout", LayoutOf(shape)}, {"precision", PrecisionOf(problem)}},
                       .integers = {{"m", shape.m},
                                    {"n", shape.n},
                                    {"k", shape.k},
                                    {"a_stride", shape.a_column_stride * shape.a_row_stride},
                                    {"b_stride", shape.b_column_stride * shape.b_row_stride},
                                    {"a_batch", batch.a_stride},
                                    {"b_batch", batch.b_stride},
                                    {"c_batch", batch.c_stride},
                                    {"batches", batch.size}},
                       .sizes = {shape.m, shape.n, shape.k}};
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  const DataType type = problem.inputs[0].data_type;
  if (!HasSums(problem)) return triton::KernelsOf(kOp, type).status();
  ASSIGN_OR_RETURN(const triton::Order order, OrderFor(problem));
  return triton::CheckSupported(kOp, type, order, device);
}

absl::StatusOr<PlanPtr> MakeTritonPlan(const Problem& problem, const PlanContext& context) {
  if (!HasSums(problem)) return PlanOfZeros(problem);
  ASSIGN_OR_RETURN(const triton::Order order, OrderFor(problem));
  return triton::PlanKernel(kOp, problem, order, context);
}

}  // namespace

Implementation TritonMatmulRow() {
  return {.name = "triton_matmul",
          .family = Family::kTriton,
          .device_kind = DeviceKind::kCuda,
          .summary =
              "a tile a block by kernels in Triton's language, compiled ahead; tensor cores "
              "for 16-bit types and tf32",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = [](DataType type) { return triton::VariantNames(kOp, type); },
          .plan = MakeTritonPlan};
}

}  // namespace warpcall::matmul
