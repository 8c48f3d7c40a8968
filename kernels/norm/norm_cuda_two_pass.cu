// Rows that no block holds in registers. A block reads a row once for mean and squares, and once
// more to write it, from the end, where the first pass stopped: rows in flight are few, and the
// second-level cache still holds much of them.
#include <string>
#include <vector>

#include "kernels/norm/norm_cuda_held.cuh"
#include "kernels/norm/norm_cuda_launch.h"
#include "proto/common/dispatch.h"

namespace warpcall::norm {
namespace {

// Two blocks share a multiprocessor, so that one moves data while the other exchanges its sums.
constexpr int kResidentBlocks = 2;
// Bytes that a thread takes at a time: twice as many would not stay in its registers.
constexpr int kStepBytes = 64;

template <typename T, bool kVectors>
struct Tiling {
  static constexpr int kWidth = kVectors ? WidestVector(sizeof(T)) : 1;
  static constexpr int kOfThread = kStepBytes / sizeof(T);
  static constexpr int kElements = kOfThread * kTwoPassThreads;  // per step
  using Step = Held<T, kWidth, kOfThread / kWidth, kTwoPassThreads>;
};

// One row, step by step. Indices within a step are 32 bits wide, steps and rows 64.
template <typename T, typename Tiling>
struct Pass {
  using Step = typename Tiling::Step;

  const RowTensors<T>& tensors;
  int64_t row;

  __device__ int64_t steps() const {
    return (tensors.n + Tiling::kElements - 1) / Tiling::kElements;
  }

  // Loads the thread's elements of a step, x factor; returns the step's number of vectors.
  template <bool kPastL1>
  __device__ int Load(int64_t step, float factor, Step* held) const {
    const int64_t begin = step * Tiling::kElements;
    const int64_t left = tensors.n - begin;
    const int vectors =
        static_cast<int>(left < Tiling::kElements ? left : Tiling::kElements) / Tiling::kWidth;
    const int thread = static_cast<int>(threadIdx.x);
    held->Take(Step::template Fetch<kPastL1>(tensors.x + row * tensors.n + begin, thread, vectors),
               thread, vectors);
    held->Multiply(factor);
    return vectors;
  }

  // Statistics of the thread's elements.
  __device__ Part Reduce(float factor) const {
    Part part = {0, 0, 0};
    for (int64_t step = 0; step < steps(); ++step) {
      Step held;
      const int vectors = Load</*kPastL1=*/false>(step, factor, &held);
      part =
          Merge(part, held.PartOf(static_cast<int>(threadIdx.x), vectors, tensors.bias != nullptr));
    }
    return part;
  }

  __device__ float Largest() const {
    float largest = 0;
    for (int64_t step = 0; step < steps(); ++step) {
      Step held;
      Load</*kPastL1=*/false>(step, 1, &held);
      largest = fmaxf(largest, held.Largest());
    }
    return largest;
  }

  __device__ void Write(float factor, float mean, float reciprocal) const {
    for (int64_t step = steps() - 1; step >= 0; --step) {
      Step held;
      const int vectors = Load</*kPastL1=*/true>(step, factor, &held);
      const int64_t begin = step * Tiling::kElements;
      const T* const bias = tensors.bias == nullptr ? nullptr : tensors.bias + begin;
      held.template Store</*kPastL1=*/true>(
          {tensors.weight + begin, bias, tensors.y + row * tensors.n + begin,
           static_cast<int>(threadIdx.x), vectors},
          {mean, reciprocal});
    }
  }
};

// Called by all threads of a block.
template <typename T, typename Tiling>
__device__ void NormalizeRow(const RowTensors<T>& tensors, int64_t row) {
  __shared__ Part shared[kTwoPassThreads / 32];
  const Pass<T, Tiling> pass{tensors, row};
  Scale scale{1, static_cast<float>(tensors.epsilon)};
  Part part = MergeOfBlock<kTwoPassThreads>(pass.Reduce(scale.factor), shared);
  if (!IsInRange(part.squares, scale.epsilon)) {  // in all threads or in none
    __shared__ float largest[kTwoPassThreads / 32];
    scale = ScaleFor(MaxOfBlock<kTwoPassThreads>(pass.Largest(), largest), tensors.epsilon);
    part = MergeOfBlock<kTwoPassThreads>(pass.Reduce(scale.factor), shared);
  }
  pass.Write(scale.factor, part.mean, ReciprocalOf(part.squares, part.count, scale.epsilon));
}

template <typename T, typename Tiling>
__global__ void __launch_bounds__(kTwoPassThreads, kResidentBlocks)
    BlockPerLongRow(RowTensors<T> tensors) {
  const int64_t row = BlockIndex();
  if (row < tensors.rows) NormalizeRow<T, Tiling>(tensors, row);
}

// Returns true if a library got a row of n elements wrong, given that it sums elements and squares
// without scaling or correction.
__device__ bool IsWrong(const RowStatistics& known, int64_t row, float n, float epsilon) {
  const float reciprocal = known.reciprocals[row];
  if (!IsReciprocalInRange(reciprocal, n, epsilon)) return true;
  const float square = 1 / (reciprocal * reciprocal) - epsilon;  // or less than 0, by rounding
  return known.means != nullptr && AreCloseTogether(known.means[row], square, 1);
}

// Each block checks as many rows as it has threads.
template <typename T, typename Tiling>
__global__ void __launch_bounds__(kTwoPassThreads, kResidentBlocks)
    RowsOutOfRange(RowTensors<T> tensors, RowStatistics known) {
  __shared__ bool wrong[kTwoPassThreads];
  const int64_t first = BlockIndex() * kTwoPassThreads;
  const int64_t mine = first + threadIdx.x;
  const bool is_wrong = mine < tensors.rows && IsWrong(known, mine, static_cast<float>(tensors.n),
                                                       static_cast<float>(tensors.epsilon));
  wrong[threadIdx.x] = is_wrong;
  if (__syncthreads_or(is_wrong) == 0) return;
  for (int i = 0; i < kTwoPassThreads; ++i) {
    if (!wrong[i]) continue;
    NormalizeRow<T, Tiling>(tensors, first + i);
    __syncthreads();  // the exchanges' shared memory is free again
  }
}

constexpr int kVariantCount = 2;  // by element, and by vectors

std::vector<std::string> Names(DataType) { return {"by element", "vectors"}; }

bool TakesVectors(const TensorSpec& x) {
  return x.dims.back() % WidestVector(ElementBytes(x.data_type)) == 0;
}

absl::Status Takes(const TensorSpec& x, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, kVariantCount));
  if (variant == 0 || TakesVectors(x)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rows of ", x.dims.back(), " elements are no multiple of this variant's vectors"));
}

absl::StatusOr<PlanPtr> MakeRowPlan(const Problem& problem, const PlanContext& context) {
  const TensorSpec& x = problem.inputs[kX];
  if (x.elements() == 0) return PlanNothing();
  ASSIGN_OR_RETURN(const int variant, VariantToPlan(context, TakesVectors(x) ? 1 : 0,
                                                    [&](int number) { return Takes(x, number); }));
  const View view = ViewOf(problem);
  const cuda::Grid grid = GridOf(view.rows, kTwoPassThreads);
  return DispatchDataType(x.data_type, [&]<typename T>(T) {
    return variant == 1
               ? NewRowPlan<T>(BlockPerLongRow<T, Tiling<T, true>>, {grid, variant}, view, context)
               : NewRowPlan<T>(BlockPerLongRow<T, Tiling<T, false>>, {grid, variant}, view,
                               context);
  });
}

}  // namespace

absl::Status EnqueueRowsOutOfRange(const View& view, const Operands& operands,
                                   const RowStatistics& known, const LaunchContext& context) {
  const cuda::Grid grid = GridOf(CeilDivide(view.rows, kTwoPassThreads), kTwoPassThreads);
  return cuda::Launch(RowsOutOfRange<float, Tiling<float, false>>, grid, context,
                      TensorsOf<float>(view, operands), known);
}

Implementation TwoPassRow() {
  return {.name = "two_pass",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "reads a row twice, a block a row",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .variant_names = Names,
          .plan = MakeRowPlan};
}

}  // namespace warpcall::norm
