// The unfused chain: maximum, subtract, exp, sum, divide, each a kernel of its own with float32
// intermediates in memory. For float32 it moves 32 bytes an element, 5 floats read and 3 written,
// where the definition needs 8. Every kernel's accesses are coalesced, so the comparison shows only
// what fusion gains.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/vector.cuh"
#include "kernels/softmax/softmax_cuda_launch.h"
#include "kernels/softmax/softmax_cuda_math.cuh"
#include "kernels/softmax/softmax_cuda_tile.cuh"
#include "proto/common/dispatch.h"

namespace warpcall::softmax {
namespace {

constexpr int kThreads = 256;

// Elements of a row that a thread takes at a time; a row with more is shared by several threads.
// 8 threads or more share a long row, so each adds up n / 128 such parts at most, and the error of
// the sum grows with no more than that.
constexpr int kSliceElements = 16;

struct Columns {
  ColumnShape shape;
  ColumnTile tile;
};

struct Maximum {
  static constexpr float kStart = kLowest;  // fmaxf drops NaN; the sum of exponentials has it
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct Sum {
  static constexpr float kStart = 0;
  __device__ float operator()(float a, float b) const { return a + b; }
};

// statistic[row] = operation over the row.
template <typename T, typename Operation>
__global__ void __launch_bounds__(kThreads) Reduce(const T* in, float* statistic, Columns columns) {
  __shared__ float shared[1][kThreads];
  const ColumnShape& shape = columns.shape;
  const ThreadPlace place = PlaceOf(shape, columns.tile, BlockIndex());
  const Operation operation;
  float result[1] = {Operation::kStart};
  const int64_t n = place.has_column ? shape.n : 0;
  const int slices = columns.tile.slices;
  const T* const x = in + place.Offset(shape);
  for (int64_t first = place.slice; first < n; first += int64_t{kSliceElements} * slices) {
    float part = Operation::kStart;
#pragma unroll
    for (int i = 0; i < kSliceElements; ++i) {
      const int64_t j = first + i * slices;
      part = operation(part, j < n ? cuda::Widen(x[j * shape.lanes]) : Operation::kStart);
    }
    result[0] = operation(result[0], part);
  }
  MergeSlices(columns.tile, shared, result, operation);
  if (place.has_column && place.slice == 0)
    statistic[place.outer * shape.lanes + place.lane] = result[0];
}

// The row of element i. Index is 32 bits wide if that is enough: a 64-bit division takes longer
// than the memory access.
template <typename Index>
__device__ int64_t RowOf(int64_t i, const ColumnShape& shape) {
  const Index inner = static_cast<Index>(shape.lanes);
  const Index slab = static_cast<Index>(shape.n) * inner;
  const Index element = static_cast<Index>(i);
  return static_cast<int64_t>(element / slab) * shape.lanes + static_cast<int64_t>(element % inner);
}

struct Elements {
  int64_t count;
  ColumnShape shape;
};

__device__ inline int64_t ElementIndex() { return BlockIndex() * kThreads + threadIdx.x; }

template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads)
    Subtract(const T* x, const float* max, float* t, Elements elements) {
  const int64_t i = ElementIndex();
  if (i >= elements.count) return;
  t[i] = cuda::Widen(x[i]) - max[RowOf<Index>(i, elements.shape)];
}

__global__ void __launch_bounds__(kThreads) Exponentiate(float* t, int64_t count) {
  const int64_t i = ElementIndex();
  if (i < count) t[i] = Exp(t[i]);
}

template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads)
    Divide(const float* t, const float* sum, T* y, Elements elements) {
  const int64_t i = ElementIndex();
  if (i >= elements.count) return;
  y[i] = cuda::Narrow<T>(t[i] / sum[RowOf<Index>(i, elements.shape)]);
}

Columns ColumnsOf(const Problem& problem, const DeviceProperties& device) {
  const View view = ViewOf(problem);
  const ColumnShape shape{view.outer, view.n, view.inner};
  return {shape, PlanColumns(shape, {.threads_max = kThreads,
                                     .held = kSliceElements,
                                     .vector_bytes = sizeof(float),
                                     .multiprocessors = device.multiprocessors})};
}

cuda::Grid ElementGrid(int64_t elements) {
  return GridOf(CeilDivide(elements, kThreads), kThreads);
}

struct Step {
  const Operands& operands;
  const LaunchContext& context;
  Columns columns;
  int64_t elements;
};

template <typename T, typename Index>
absl::Status LaunchChain(const Step& step) {
  const LaunchContext& context = step.context;
  const T* const x = static_cast<const T*>(step.operands.inputs[0]);
  T* const y = static_cast<T*>(step.operands.outputs[0]);
  float* const t = static_cast<float*>(context.workspace);
  float* const statistic = t + step.elements;
  const ColumnTile& tile = step.columns.tile;
  const cuda::Grid rows = GridOf(tile.blocks, tile.threads());
  const cuda::Grid all = ElementGrid(step.elements);
  const Elements elements{step.elements, step.columns.shape};
  RETURN_IF_ERROR(cuda::Launch(Reduce<T, Maximum>, rows, context, x, statistic, step.columns));
  RETURN_IF_ERROR(cuda::Launch(Subtract<T, Index>, all, context, x, statistic, t, elements));
  RETURN_IF_ERROR(cuda::Launch(Exponentiate, all, context, t, step.elements));
  RETURN_IF_ERROR(cuda::Launch(Reduce<float, Sum>, rows, context, t, statistic, step.columns));
  return cuda::Launch(Divide<T, Index>, all, context, t, statistic, y, elements);
}

// The variants, by the bits of an element's index.
constexpr int kNarrowIndex = 0;
constexpr int kWideIndex = 1;
constexpr int kVariantCount = 2;

int Chosen(const Problem& problem) {
  return problem.inputs[0].elements() <= UINT32_MAX ? kNarrowIndex : kWideIndex;
}

absl::Status Takes(const Problem& problem, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, kVariantCount));
  if (variant >= Chosen(problem)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("an index of 32 bits numbers ", UINT32_MAX,
                                                 " elements; here they are ",
                                                 problem.inputs[0].elements()));
}

std::vector<std::string> Names(DataType) { return {"32-bit index", "64-bit index"}; }

// The plan reports exp's shape: no other kernel moves more in any data type, 8 bytes an element.
absl::StatusOr<PlanPtr> MakeChainPlan(const Problem& problem, const PlanContext& context) {
  const int64_t elements = problem.inputs[0].elements();
  if (elements == 0) return PlanNothing();
  const auto takes = [&](int variant) { return Takes(problem, variant); };
  ASSIGN_OR_RETURN(const int variant, VariantToPlan(context, Chosen(problem), takes));
  const Columns columns = ColumnsOf(problem, *context.device);
  const Plan::Traits traits = {.workspace_bytes = SaturatingBytes(
                                   SaturatingAdd(elements, ViewOf(problem).rows()), sizeof(float)),
                               .variant = variant};
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    return cuda::NewKernelPlan(traits, {Exponentiate, ElementGrid(elements), /*gpu_kernels=*/5},
                               context, [=](const Operands& operands, const LaunchContext& launch) {
                                 const Step step{operands, launch, columns, elements};
                                 return variant == kNarrowIndex ? LaunchChain<T, uint32_t>(step)
                                                                : LaunchChain<T, uint64_t>(step);
                               });
  });
}

}  // namespace

Implementation ChainOfKernelsRow() {
  return {.name = "chain_of_kernels",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCuda,
          .summary = "one elementary operation per kernel",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .variant_names = Names,
          .plan = MakeChainPlan};
}

}  // namespace warpcall::softmax
