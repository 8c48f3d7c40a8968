// This project's vectorised matmul: float32 sums, 16-bit types widened while packing. How the work
// is cut is decided here; what a thread does with its part stands in matmul_simd_blocked-inl.h and,
// for few rows, matmul_simd_skinny-inl.h.
#include "kernels/matmul/matmul_simd.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "kernels/common/saturate.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_simd_team.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"
#include "proto/common/status_macros.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/matmul/matmul_simd_blocked-inl.h"
#include "kernels/matmul/matmul_simd_skinny-inl.h"

#ifndef WARPCALL_MATMUL_SIMD_ONCE
#define WARPCALL_MATMUL_SIMD_ONCE
namespace warpcall::matmul {

enum SimdVariant : int {
  kFewRows,        // b is read where it lies
  kSharedMatrix,   // threads share each matrix
  kWholeMatrices,  // each thread multiplies whole ones
};

// How the work is cut; the targets' blocks differ.
struct Cut {
  Shape shape;
  int variant;
  int slots;
  bool swapped;  // c has one column, and is taken for the row b^T x a^T
  int64_t block_columns;
  int64_t block_rows;
  // Sizes of the workspace's parts, in floats.
  int64_t panel_floats;
  int64_t sum_floats;  // where the output is narrower than its sums
  int64_t row_floats;  // of a slot
  std::optional<Epilogue> epilogue = std::nullopt;

  // By kWholeMatrices each slot multiplies in a workspace of its own.
  int64_t WorkspaceFloats() const {
    if (variant == kFewRows) return 0;
    const int64_t shared = panel_floats + sum_floats;
    return variant == kWholeMatrices ? slots * (shared + row_floats) : shared + slots * row_floats;
  }
};

}  // namespace warpcall::matmul
#endif

HWY_BEFORE_NAMESPACE();
namespace warpcall::matmul::HWY_NAMESPACE {

// A packed slice of b is 256 x 1024 floats, 1 MiB that the threads share; a task's rows of a are
// 240 x 256 floats, 240 KiB of its own middle cache. Half and twice of either were within the noise
// of the measurement (10 %) on Sapphire Rapids at 1024^3 and 2048^3.
inline constexpr int64_t kBlockColumns = 1024;
inline constexpr int64_t kTaskRows = 240;
// Sums of a 16-bit output wait in the workspace: 512 x 1024 floats are 2 MiB.
inline constexpr int64_t kStagedRows = 512;
// Tasks shorter than this would not repay loading a panel of b into the inner cache.
inline constexpr int64_t kTaskRowsMin = 4 * kTileRows;
static_assert(kTaskRows % kTileRows == 0);

// About 20 us at the 100 GFLOP/s that one core was measured to reach: less would not repay waking a
// thread and waiting for it.
inline constexpr int64_t kTermsPerSlot = 1 << 20;
// Up to 256^3, which takes one core a third of a millisecond, matrices are given to threads whole:
// threads that share one meet after each slice.
inline constexpr int64_t kTermsPerSmallMatrix = 1 << 24;

// c = a x b with one column is the row c^T = b^T x a^T.
Shape AsRow(Shape shape) {
  std::swap(shape.m, shape.n);
  std::swap(shape.a_row_stride, shape.b_column_stride);
  std::swap(shape.a_column_stride, shape.b_row_stride);
  for (BatchDim& dim : shape.batch) std::swap(dim.a_stride, dim.b_stride);
  return shape;
}

// The row's choice of a variant for a cut that has its shape and slots.
int ChosenVariant(const Cut& cut) {
  const Shape& shape = cut.shape;
  if (shape.m <= kSkinnyRowsMax) return kFewRows;
  const bool small = SaturatingMultiply(shape.m * shape.n, shape.k) <= kTermsPerSmallMatrix;
  return shape.batches() >= 2 * cut.slots && small ? kWholeMatrices : kSharedMatrix;
}

// REQUIRES: the output of `problem` has elements.
Cut MakeCut(const Problem& problem, const DeviceProperties& device, int variant) {
  Cut cut = {};
  cut.shape = DecodeShape(problem);
  cut.swapped = cut.shape.n == 1 && cut.shape.m > 1;
  if (cut.swapped) cut.shape = AsRow(std::move(cut.shape));
  const Shape& shape = cut.shape;
  const int64_t terms = SaturatingMultiply(shape.m * shape.n, shape.k);
  cut.slots = static_cast<int>(
      std::clamp<int64_t>(SaturatingMultiply(terms, shape.batches()) / kTermsPerSlot, 1,
                          std::max(1, device.multiprocessors)));
  cut.variant = variant == kRowsChoice ? ChosenVariant(cut) : variant;
  const bool staged = problem.outputs[0].data_type != DataType::kFloat32;
  cut.block_columns = std::min<int64_t>(kBlockColumns, hwy::RoundUpTo(shape.n, kPanelColumns));
  cut.block_rows = staged ? std::min(kStagedRows, shape.m) : shape.m;
  cut.panel_floats = kDepth * cut.block_columns;
  cut.sum_floats = staged ? cut.block_rows * cut.block_columns : 0;
  cut.row_floats = std::min<int64_t>(kTaskRows, hwy::RoundUpTo(shape.m, kTileRows)) * kRowDistance;
  return cut;
}

// How `rows` x `columns` of c are cut into tasks for `slots` threads: rows first, columns where
// rows are few.
struct Tasks {
  int64_t rows;     // of a task, a multiple of kTileRows
  int64_t columns;  // of a task, a multiple of kPanelColumns
  int64_t row_count;
  int64_t count;
};

Tasks CutTasks(int64_t rows, int64_t columns, int slots) {
  int64_t row_tasks = CeilDivide(CeilDivide(rows, kTaskRows), slots) * slots;
  row_tasks = std::min(row_tasks, std::max<int64_t>(1, rows / kTaskRowsMin));
  Tasks tasks;
  tasks.rows = std::min<int64_t>(kTaskRows, hwy::RoundUpTo(CeilDivide(rows, row_tasks), kTileRows));
  tasks.row_count = CeilDivide(rows, tasks.rows);
  const int64_t column_tasks = CeilDivide(slots, tasks.row_count);
  tasks.columns = hwy::RoundUpTo(CeilDivide(columns, column_tasks), kPanelColumns);
  tasks.count = tasks.row_count * CeilDivide(columns, tasks.columns);
  return tasks;
}

struct Workspace {
  float* panels;
  float* sums;
  float* rows;  // one stretch of row_floats per slot
  int64_t row_floats;
};

Workspace WorkspaceAt(const Cut& cut, float* base) {
  return {base, base + cut.panel_floats, base + cut.panel_floats + cut.sum_floats, cut.row_floats};
}

// One slice of k of one block of c.
template <typename T>
struct Slice {
  Matrix<T> a;  // [rows, depth]
  Matrix<T> b;  // [depth, columns]
  T* c;         // [rows, columns], c_stride apart
  int64_t c_stride;
  float* sums;  // as c; the same memory where T is float
  int64_t sums_stride;
  int64_t rows;
  int64_t columns;
  int64_t depth;
  bool first;  // overwrites the sums
  bool last;   // finishes the sums into c
  Finish<T> finish;
};

template <typename T>
void MultiplyTask(const Slice<T>& x, const float* panels, float* packed_rows) {
  PackRows(x.a, x.rows, x.depth, packed_rows);
  for (int64_t j = 0; j < x.columns; j += kPanelColumns) {
    const int64_t columns = std::min<int64_t>(kPanelColumns, x.columns - j);
    for (int64_t i = 0; i < x.rows; i += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, x.rows - i);
      const Tile tile{.a = packed_rows + i * kRowDistance,
                      .b = panels + j * kDepth,
                      .c = x.sums + i * x.sums_stride + j,
                      .c_stride = x.sums_stride,
                      .depth = x.depth,
                      .accumulate = !x.first};
      if (columns == kPanelColumns) {
        MultiplyRows<kTileRows, kPanelVectors>(rows, tile);
      } else {
        MultiplyEdge(rows, columns, tile);
      }
    }
    if (!x.last) continue;
    for (int64_t i = 0; i < x.rows; ++i)
      FinishRow(x.finish.From(j), x.sums + i * x.sums_stride + j, columns,
                x.c + i * x.c_stride + j);
  }
}

template <typename T>
void MultiplySlice(const Slice<T>& x, const Workspace& workspace, const Team& team) {
  team.ForEach(CeilDivide(x.columns, kPanelColumns), [&](int, int64_t panel) {
    const int64_t j = panel * kPanelColumns;
    PackPanel(x.b.At(0, j), x.depth, std::min<int64_t>(kPanelColumns, x.columns - j),
              workspace.panels + j * kDepth);
  });
  const Tasks tasks = CutTasks(x.rows, x.columns, team.slots());
  team.ForEach(tasks.count, [&](int slot, int64_t index) {
    const int64_t i = index % tasks.row_count * tasks.rows;
    const int64_t j = index / tasks.row_count * tasks.columns;
    Slice<T> part = x;
    part.a = x.a.At(i, 0);
    part.c += i * x.c_stride + j;
    part.finish = x.finish.From(j);
    part.sums += i * x.sums_stride + j;
    part.rows = std::min(tasks.rows, x.rows - i);
    part.columns = std::min(tasks.columns, x.columns - j);
    MultiplyTask(part, workspace.panels + j * kDepth, workspace.rows + slot * workspace.row_floats);
  });
}

template <typename T>
void MultiplyMatrix(const Cut& cut, const Slice<T>& whole, const Workspace& workspace,
                    const Team& team) {
  const Shape& shape = cut.shape;
  for (int64_t j = 0; j < shape.n; j += cut.block_columns) {
    for (int64_t i = 0; i < shape.m; i += cut.block_rows) {
      for (int64_t p = 0; p < shape.k; p += kDepth) {
        if (p > 0 && IsSet(team.stop())) return;
        Slice<T> slice = whole;
        slice.a = whole.a.At(i, p);
        slice.b = whole.b.At(p, j);
        slice.c += i * shape.n + j;
        slice.finish = whole.finish.From(j);
        slice.sums = workspace.sums;
        slice.sums_stride = cut.block_columns;
        if constexpr (sizeof(T) == sizeof(float)) {
          slice.sums = slice.c;
          slice.sums_stride = slice.c_stride;
        }
        slice.rows = std::min(cut.block_rows, shape.m - i);
        slice.columns = std::min(cut.block_columns, shape.n - j);
        slice.depth = std::min(kDepth, shape.k - p);
        slice.first = p == 0;
        slice.last = p + slice.depth == shape.k;
        MultiplySlice(slice, workspace, team);
      }
    }
  }
}

template <typename T>
Finish<T> FinishOf(const Cut& cut, const Operands& operands) {
  if (!cut.epilogue.has_value()) return {};
  return {.bias = static_cast<const T*>(operands.inputs[2]),
          .bias_by_column = !cut.swapped,
          .activation = cut.epilogue->activation};
}

template <typename T>
void MultiplyBlocked(const Cut& cut, const Operands& operands, float* base, const Team& team) {
  const Finish<T> finish = FinishOf<T>(cut, operands);
  const Shape& shape = cut.shape;
  const auto multiply = [&](int64_t batch, float* at, const Team& own) {
    const Offsets offsets = shape.BatchOffsets(batch);
    Slice<T> whole = {};
    whole.a = {static_cast<const T*>(operands.inputs[0]) + offsets.a, shape.a_row_stride,
               shape.a_column_stride};
    whole.b = {static_cast<const T*>(operands.inputs[1]) + offsets.b, shape.b_row_stride,
               shape.b_column_stride};
    whole.c = static_cast<T*>(operands.outputs[0]) + offsets.c;
    whole.c_stride = shape.n;
    whole.finish = finish;
    MultiplyMatrix(cut, whole, WorkspaceAt(cut, at), own);
  };
  if (cut.variant == kWholeMatrices) {
    const int64_t floats_per_slot = cut.WorkspaceFloats() / cut.slots;
    team.ForEach(shape.batches(), [&](int slot, int64_t batch) {
      multiply(batch, base + slot * floats_per_slot, team.Alone());
    });
  } else {
    for (int64_t batch = 0; batch < shape.batches(); ++batch) {
      if (batch > 0 && IsSet(team.stop())) return;
      multiply(batch, base, team);
    }
  }
}

void Run(const Cut& cut, DataType type, const Operands& operands, const LaunchContext& context) {
  Operands ordered = operands;
  if (cut.swapped) std::swap(ordered.inputs[0], ordered.inputs[1]);
  const Team team(cpu::WorkersOf(context), cut.slots);
  DispatchDataType(type, [&]<typename T>(T) {
    if (cut.variant == kFewRows) {
      MultiplySkinny<T>(cut.shape, ordered, FinishOf<T>(cut, ordered), team);
    } else {
      MultiplyBlocked<T>(cut, ordered, static_cast<float*>(context.workspace), team);
    }
  });
}

}  // namespace warpcall::matmul::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace warpcall::matmul {
namespace {

HWY_EXPORT(MakeCut);
HWY_EXPORT(Run);

constexpr int kVariantCount = 3;
constexpr int64_t kFewRowsMax = HWY_NAMESPACE::kSkinnyRowsMax;

absl::StatusOr<PlanPtr> MakeSimdPlan(const Problem& problem, const PlanContext& context) {
  if (!NothingToSum(problem)) return PlanSimdTiled(problem, context, std::nullopt);
  RETURN_IF_ERROR(CheckSimdVariant(context.variant));
  return NewPlan({}, [problem](const Operands& operands, const LaunchContext&) {
    FinishIfNothingToSum(problem, operands);
    return absl::OkStatus();
  });
}

}  // namespace

std::vector<std::string> SimdVariantNames(DataType) {
  return {"few rows", "shared matrix", "whole matrices"};
}

absl::Status CheckSimdVariant(int variant) {
  return variant == kRowsChoice ? absl::OkStatus() : CheckVariantNumber(variant, kVariantCount);
}

absl::StatusOr<PlanPtr> PlanSimdTiled(const Problem& problem, const PlanContext& context,
                                      const std::optional<Epilogue>& epilogue) {
  RETURN_IF_ERROR(CheckSimdVariant(context.variant));
  Cut cut = HWY_DYNAMIC_DISPATCH(MakeCut)(problem, *context.device, context.variant);
  cut.epilogue = epilogue;
  if (cut.variant == kFewRows && cut.shape.m > kFewRowsMax)
    return absl::InvalidArgumentError(
        absl::StrCat("few rows are up to ", kFewRowsMax, "; here they are ", cut.shape.m));
  const Plan::Traits traits = {
      .workspace_bytes = SaturatingBytes(cut.WorkspaceFloats(), sizeof(float)),
      .variant = cut.variant};
  return NewPlan(traits, [cut = std::move(cut), type = problem.outputs[0].data_type](
                             const Operands& operands, const LaunchContext& launch) {
    HWY_DYNAMIC_DISPATCH(Run)(cut, type, operands, launch);
    return absl::OkStatus();
  });
}

Implementation SimdTiledRow() {
  return {.name = "simd_tiled",
          .family = Family::kCpu,
          .device_kind = DeviceKind::kCpu,
          .summary = "packed panels, register-blocked kernel, all threads",
          .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
          .supports = SupportsAll,
          .variant_names = SimdVariantNames,
          .plan = MakeSimdPlan};
}

}  // namespace warpcall::matmul
#endif  // HWY_ONCE
