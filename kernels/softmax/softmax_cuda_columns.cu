// An axis with a stride: a thread takes a column, or a vector of neighbouring columns, and where
// columns are few several threads share the axis of one (softmax_cuda_tile.h). Loads and stores are
// contiguous across the columns. A column that its threads hold in registers is read once, a longer
// one twice.
#include <algorithm>
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

// A block reads twice only where the axis is long: then more of its threads can share it.
constexpr int kHoldingThreads = 256;
constexpr int kStreamingThreads = 512;

// Elements in registers at a time, of all columns of a thread; of one column, 16 are enough to keep
// loads in flight.
constexpr int kInFlight = 32;
constexpr int kAxisMax = 16;

template <typename T, int kWidthIn, bool kHoldsIn>
struct ColumnTiling {
  static constexpr int kWidth = kWidthIn;
  static constexpr bool kHolds = kHoldsIn;  // the whole axis is in registers
  static constexpr int kThreads = kHolds ? kHoldingThreads : kStreamingThreads;
  static constexpr int kAxis = std::min(kAxisMax, kInFlight / kWidth);
  static_assert(kWidth * sizeof(T) <= kVectorBytes);
};

template <typename T>
struct ColumnTensor {
  const T* x;
  T* y;
  ColumnShape shape;
  ColumnTile tile;
};

// kAxis elements of the axis, `step` of them apart, for kWidth columns.
template <typename T, typename Tiling>
struct HeldColumns {
  static constexpr int kWidth = Tiling::kWidth;
  using Vector = cuda::Vector<T, kWidth>;

  float value[Tiling::kAxis][kWidth];

  // Elements first, first + step, ... < n; x is that of index 0.
  template <bool kPastL1>
  __device__ void Load(const T* x, int64_t first, const ColumnTensor<T>& tensor) {
    Vector raw[Tiling::kAxis];
#pragma unroll
    for (int i = 0; i < Tiling::kAxis; ++i) {
      const int64_t j = first + i * tensor.tile.slices;
      if (j < tensor.shape.n) {
        const T* const at = x + j * tensor.shape.lanes * kWidth;
        raw[i] = kPastL1 ? Vector::LoadStreaming(at) : Vector::Load(at);
      } else {
        float nothing[kWidth];
#pragma unroll
        for (int k = 0; k < kWidth; ++k) nothing[k] = -INFINITY;
        raw[i] = Vector::Pack(nothing);
      }
    }
#pragma unroll
    for (int i = 0; i < Tiling::kAxis; ++i) raw[i].Unpack(value[i]);
  }

  __device__ float Max(int k) const {
    float max = value[0][k];
#pragma unroll
    for (int i = 1; i < Tiling::kAxis; ++i) max = fmaxf(max, value[i][k]);
    return max;
  }

  // Replaces every x of column k by exp(x - max) and returns their sum.
  __device__ float Exponentiate(int k, float max) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Tiling::kAxis; ++i) {
      value[i][k] = Exp(value[i][k] - max);
      sum += value[i][k];
    }
    return sum;
  }

  __device__ void Store(T* y, int64_t first, const ColumnTensor<T>& tensor,
                        const float (&scale)[kWidth]) const {
#pragma unroll
    for (int i = 0; i < Tiling::kAxis; ++i) {
      const int64_t j = first + i * tensor.tile.slices;
      if (j >= tensor.shape.n) continue;
      float scaled[kWidth];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) scaled[k] = value[i][k] * scale[k];
      Vector::Pack(scaled).StoreStreaming(y + j * tensor.shape.lanes * kWidth);
    }
  }
};

// The thread's slice of the axis, elements first, first + step, ... < n; `offset` is that of
// element 0 of its first column.
struct Slice {
  int64_t offset;
  int64_t first;
  int64_t step;
  int64_t n;
};

// With Tiling::kHolds there is one step, whose exponentials stay in `held`.
template <typename T, typename Tiling>
__device__ void Reduce(const ColumnTensor<T>& tensor, const Slice& slice,
                       HeldColumns<T, Tiling>* held, MaxSum (&part)[Tiling::kWidth]) {
#pragma unroll
  for (int k = 0; k < Tiling::kWidth; ++k) part[k] = {kLowest, 0};
  for (int64_t j = slice.first; j < slice.n; j += slice.step) {
    held->template Load</*kPastL1=*/Tiling::kHolds>(tensor.x + slice.offset, j, tensor);
#pragma unroll
    for (int k = 0; k < Tiling::kWidth; ++k) {
      const float max = fmaxf(part[k].max, held->Max(k));
      part[k] = {max, part[k].sum * Exp(part[k].max - max) + held->Exponentiate(k, max)};
    }
    if (Tiling::kHolds) break;
  }
}

// Reads the slice again, what Reduce read last first, and writes it.
template <typename T, typename Tiling>
__device__ void Write(const ColumnTensor<T>& tensor, const Slice& slice,
                      const MaxSum (&column)[Tiling::kWidth]) {
  float scale[Tiling::kWidth];
#pragma unroll
  for (int k = 0; k < Tiling::kWidth; ++k) scale[k] = Reciprocal(column[k].sum);
  int64_t j = slice.first + (slice.n - 1 - slice.first) / slice.step * slice.step;
  for (; j >= slice.first; j -= slice.step) {
    HeldColumns<T, Tiling> held;
    held.template Load</*kPastL1=*/true>(tensor.x + slice.offset, j, tensor);
#pragma unroll
    for (int k = 0; k < Tiling::kWidth; ++k) held.Exponentiate(k, column[k].max);
    held.Store(tensor.y + slice.offset, j, tensor, scale);
  }
}

template <typename T, typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads) ThreadPerColumn(ColumnTensor<T> tensor) {
  constexpr int kWidth = Tiling::kWidth;
  __shared__ MaxSum shared[kWidth][Tiling::kThreads];
  const ThreadPlace place = PlaceOf(tensor.shape, tensor.tile, BlockIndex());
  // Threads without a column take nothing of the axis, but meet the others at the barriers.
  const Slice slice{place.Offset(tensor.shape) * kWidth, place.slice,
                    int64_t{tensor.tile.slices} * Tiling::kAxis,
                    place.has_column ? tensor.shape.n : 0};
  HeldColumns<T, Tiling> held;
  MaxSum part[kWidth];
  Reduce<T, Tiling>(tensor, slice, &held, part);
  MaxSum column[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) column[k] = part[k];
  MergeSlices(tensor.tile, shared, column, [](MaxSum a, MaxSum b) { return Merge(a, b); });
  if (slice.first >= slice.n) return;
  if constexpr (Tiling::kHolds) {
    float scale[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) scale[k] = ScaleOf(part[k].max, column[k]);
    held.Store(tensor.y + slice.offset, slice.first, tensor, scale);
  } else {
    Write<T, Tiling>(tensor, slice, column);
  }
}

template <typename T, typename Tiling>
ColumnTile TileOf(const ColumnShape& shape, const DeviceProperties& device) {
  return PlanColumns(shape, {.threads_max = Tiling::kThreads,
                             .held = Tiling::kAxis,
                             .vector_bytes = Tiling::kWidth * static_cast<int>(sizeof(T)),
                             .multiprocessors = device.multiprocessors});
}

// The ways to take columns. kTwice reads twice and also takes columns that would fit.
enum class Taking : uint8_t { kByOne, kByShares, kTwice };

struct ColumnVariant {
  bool in_vectors;
  Taking taking;
};
constexpr int kVariantCount = 6;

constexpr ColumnVariant VariantAt(int number) {
  return {number / 3 == 1, static_cast<Taking>(number % 3)};
}
constexpr int NumberOf(const ColumnVariant& variant) {
  return (variant.in_vectors ? 3 : 0) + static_cast<int>(variant.taking);
}

// body(kernel, shape, tile) for a variant.
template <typename T, typename Body>
auto WithKernel(const View& view, const DeviceProperties& device, int variant, const Body& body) {
  return DispatchIndex<4>(
      VariantAt(variant).in_vectors * 2 + (VariantAt(variant).taking == Taking::kTwice ? 1 : 0),
      [&](auto kernel) {
        constexpr int kWidth = kernel.value / 2 ? WidestVector(sizeof(T)) : 1;
        using Tiling = ColumnTiling<T, kWidth, kernel.value % 2 == 0>;
        const ColumnShape shape{view.outer, view.n, view.inner / kWidth};
        return body(ThreadPerColumn<T, Tiling>, shape, TileOf<T, Tiling>(shape, device));
      });
}

// The way for columns in vectors of kWidth: whole columns in registers, if that is possible.
template <typename T, int kWidth>
Taking TakingOf(const View& view, const DeviceProperties& device) {
  using Holding = ColumnTiling<T, kWidth, true>;
  const ColumnTile tile = TileOf<T, Holding>({view.outer, view.n, view.inner / kWidth}, device);
  if (int64_t{tile.slices} * Holding::kAxis < view.n) return Taking::kTwice;
  return tile.slices == 1 ? Taking::kByOne : Taking::kByShares;
}

Taking TakingOf(const Problem& problem, const DeviceProperties& device, bool in_vectors) {
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    return in_vectors ? TakingOf<T, WidestVector(sizeof(T))>(ViewOf(problem), device)
                      : TakingOf<T, 1>(ViewOf(problem), device);
  });
}

bool InVectors(const Problem& problem) {
  return ViewOf(problem).inner % WidestVector(ElementBytes(problem.inputs[0].data_type)) == 0;
}

int Chosen(const Problem& problem, const DeviceProperties& device) {
  const bool in_vectors = InVectors(problem);
  return NumberOf({in_vectors, TakingOf(problem, device, in_vectors)});
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  if (problem.inputs[0].elements() == 0 || ViewOf(problem).inner > 1) return absl::OkStatus();
  return absl::UnimplementedError(
      "thread_per_column takes an axis whose elements are 2 or more apart; here they are 1 apart");
}

absl::Status Takes(const Problem& problem, const DeviceProperties& device, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, kVariantCount));
  RETURN_IF_ERROR(Supports(problem, device));
  const auto [in_vectors, taking] = VariantAt(variant);
  if (in_vectors && !InVectors(problem))
    return absl::InvalidArgumentError(
        absl::StrCat("columns of ", ViewOf(problem).inner,
                     " neighbours are not a whole number of vectors of ", kVectorBytes, " bytes"));
  if (taking == Taking::kTwice || taking == TakingOf(problem, device, in_vectors))
    return absl::OkStatus();
  return CannotTake(ViewOf(problem).n);
}

std::vector<std::string> Names(DataType) {
  return {"columns held by one thread", "columns held by several threads", "columns read twice",
          "vectors held by one thread", "vectors held by several threads", "vectors read twice"};
}

absl::StatusOr<PlanPtr> MakeColumnPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  const DeviceProperties& device = *context.device;
  const auto takes = [&](int variant) { return Takes(problem, device, variant); };
  ASSIGN_OR_RETURN(const int variant, VariantToPlan(context, Chosen(problem, device), takes));
  return DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    return WithKernel<T>(
        ViewOf(problem), device, variant,
        [&](auto* kernel, const ColumnShape& shape, const ColumnTile& tile) {
          const cuda::Grid grid = GridOf(tile.blocks, tile.threads());
          return cuda::NewKernelPlan(
              {.variant = variant, .may_be_replayed = true}, {kernel, grid}, context,
              [kernel, grid, shape, tile](const Operands& operands, const LaunchContext& launch) {
                const ColumnTensor<T> tensor{static_cast<const T*>(operands.inputs[0]),
                                             static_cast<T*>(operands.outputs[0]), shape, tile};
                return cuda::Launch(kernel, grid, launch, tensor);
              });
        });
  });
}

}  // namespace

Implementation ThreadPerColumnRow() {
  return {.name = "thread_per_column",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "neighbouring threads take neighbouring columns",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .variant_names = Names,
          .plan = MakeColumnPlan};
}

}  // namespace warpcall::softmax
