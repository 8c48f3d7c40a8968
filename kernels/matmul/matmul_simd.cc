// This project's vectorised matmul: float32 sums, 16-bit types widened while packing, but for
// bfloat16 where the processor multiplies pairs of it. This file cuts the work; a thread's part is
// in matmul_simd_blocked-inl.h, matmul_simd_pairs.h, matmul_simd_tiles.h and, for few rows,
// matmul_simd_skinny-inl.h and matmul_simd_narrow-inl.h.
#include "kernels/matmul/matmul_simd.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "kernels/common/saturate.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_simd_pairs.h"
#include "kernels/matmul/matmul_simd_team.h"
#include "kernels/matmul/matmul_simd_tiles.h"
#include "kernels/plan.h"
#include "proto/common/check.h"
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
  kFewPairs,       // as the three before, pairs of bfloat16 as they are
  kSharedPairs,
  kWholePairs,
  kSharedTiles,  // and those by AMX
  kWholeTiles,
};

// The way that the work is cut; the targets' blocks differ.
struct Cut {
  Shape shape;
  int variant;
  int slots;
  bool swapped;  // c has one column, and is taken for the row b^T x a^T
  int64_t block_columns;
  int64_t block_rows;
  // Sizes of the workspace's parts, in words of 4 bytes.
  int64_t panel_words;
  int64_t sum_words;  // where the output is narrower than its sums
  int64_t row_words;  // per slot
  std::optional<Epilogue> epilogue = std::nullopt;

  bool in_pairs() const { return variant == kSharedPairs || variant == kWholePairs; }
  bool in_tiles() const { return variant == kSharedTiles || variant == kWholeTiles; }
  // Each slot multiplies in a workspace of its own.
  bool whole() const {
    return variant == kWholeMatrices || variant == kWholePairs || variant == kWholeTiles;
  }
  int64_t WorkspaceWords() const {
    if (variant == kFewRows || variant == kFewPairs) return 0;
    const int64_t shared = panel_words + sum_words;
    return whole() ? slots * (shared + row_words) : shared + slots * row_words;
  }
};

}  // namespace warpcall::matmul
#endif

HWY_BEFORE_NAMESPACE();
namespace warpcall::matmul::HWY_NAMESPACE {

// A packed slice of b is 1024 columns of 256 words in float32, 1 MiB that the threads share, and of
// 512 words in pairs; a task's rows of a are 240 x 256 words, 240 KiB of its own middle cache, and
// twice that. Half and twice of either were within the noise of the measurement (10 %) on Sapphire
// Rapids at 1024^3 and 2048^3, in float32.
inline constexpr int64_t kBlockColumns = 1024;
// Tasks of fewer tiles would not repay loading a panel of b into the inner cache.
inline constexpr int64_t kTaskTilesMin = 4;
static_assert(Widened::kTaskRows % Widened::kRows == 0 && Paired::kTaskRows % Paired::kRows == 0 &&
              Tiled::kTaskRows % Tiled::kRows == 0);

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

// Number of the variants that exist here, best last. Better targets have lower numbers, and AVX3 is
// the first with AVX-512; tests choose others.
int VariantCount(DataType type) {
  if (HWY_TARGET > HWY_AVX3 || type != DataType::kBFloat16 || !pairs::Available())
    return kWholeMatrices + 1;
  return (tiles::Available() ? kWholeTiles : kWholePairs) + 1;
}

// Rows that are sooner multiplied by columns of b as they lie than by packed panels, in pairs and
// where k is adjacent. On a Zen 5 with n = 4096, in us: 48 rows and k = 128 261 and 285, k = 64 196
// and 139; 32 rows and k = 64 140 and 104; 16 rows and k = 64 81 and 77. Tiles have only been
// compared with what takes up to 8.
int64_t RowsOfPairsMax(const Shape& shape) {
  constexpr int64_t kShortSum = 128;
  if (tiles::Available()) return kRowsPerPass;
  return shape.k < kShortSum ? 2 * kRowsPerPass : kRowsOfPairsMax;
}

// Rows that are sooner multiplied by strips of b as it lies, widened, than by packed pairs: fewer
// where caches hold b. On a Zen 4, in us: by 1024 x 1024 4 rows 112 and 122, 6 rows 167 and 139, 24
// rows 662 and 308; by 4096 x 4096 12 rows 7000 and 10200. Tiles have not been compared.
int64_t RowsByStripsMax(const Shape& shape, DataType type) {
  constexpr int64_t kCachedElements = 1 << 21;
  constexpr int64_t kRowsByCachedStrips = 4;
  const int64_t most = SkinnyRowsMax(shape);
  const bool by_pairs = VariantCount(type) > kSharedPairs && !tiles::Available();
  const bool cached = SaturatingMultiply(shape.k, shape.n) <= kCachedElements;
  return by_pairs && cached && shape.n >= Paired::kColumns / 2 ? std::min(most, kRowsByCachedStrips)
                                                               : most;
}

// The row's choice of a variant for a cut that has its shape and slots.
int ChosenVariant(const Cut& cut, DataType type) {
  const Shape& shape = cut.shape;
  if (VariantCount(type) > kFewPairs && TakesSkinnyByPairs(shape) &&
      shape.m <= RowsOfPairsMax(shape))
    return kFewPairs;
  if (shape.m <= RowsByStripsMax(shape, type)) return kFewRows;
  const bool small = SaturatingMultiply(shape.m * shape.n, shape.k) <= kTermsPerSmallMatrix;
  const bool whole = shape.batches() >= 2 * cut.slots && small;
  const int best = VariantCount(type) - 1;
  return whole ? best : best - 1;
}

template <typename Blocks>
void SizeParts(bool staged, Cut* cut) {
  const Shape& shape = cut->shape;
  const int64_t columns = hwy::RoundUpTo(shape.n, Blocks::kColumns);
  cut->block_columns = std::min<int64_t>(kBlockColumns, columns);
  cut->block_rows = staged ? std::min(Blocks::kStagedRows, shape.m) : shape.m;
  cut->panel_words = cut->block_columns / Blocks::kColumns * Blocks::kPanelWords;
  cut->sum_words = staged ? cut->block_rows * cut->block_columns : 0;
  cut->row_words = std::min<int64_t>(Blocks::kTaskRows, hwy::RoundUpTo(shape.m, Blocks::kRows)) *
                   Blocks::kRowWords;
}

// REQUIRES: the output of `problem` has elements.
Cut MakeCut(const Problem& problem, const DeviceProperties& device, int variant) {
  WARPCALL_DCHECK(problem.outputs[0].elements() > 0, ToString(problem.outputs[0]));
  Cut cut = {};
  cut.shape = DecodeShape(problem);
  cut.swapped = cut.shape.n == 1 && cut.shape.m > 1;
  if (cut.swapped) cut.shape = AsRow(std::move(cut.shape));
  const Shape& shape = cut.shape;
  const int64_t terms = SaturatingMultiply(shape.m * shape.n, shape.k);
  cut.slots = static_cast<int>(
      std::clamp<int64_t>(SaturatingMultiply(terms, shape.batches()) / kTermsPerSlot, 1,
                          std::max(1, device.multiprocessors)));
  const DataType type = problem.outputs[0].data_type;
  cut.variant = variant == kRowsChoice ? ChosenVariant(cut, type) : variant;
  const bool staged = type != DataType::kFloat32;
  if (cut.in_tiles()) {
    SizeParts<Tiled>(staged, &cut);
  } else if (cut.in_pairs()) {
    SizeParts<Paired>(staged, &cut);
  } else {
    SizeParts<Widened>(staged, &cut);
  }
  return cut;
}

// Cuts `rows` x `columns` of c into tasks for `slots` threads: rows first, columns where rows are
// few.
struct Tasks {
  int64_t rows;     // per task, whole tiles
  int64_t columns;  // per task, whole panels
  int64_t row_count;
  int64_t count;
};

template <typename Blocks>
Tasks CutTasks(int64_t rows, int64_t columns, int slots) {
  constexpr int64_t kTaskRowsMin = kTaskTilesMin * Blocks::kRows;
  int64_t row_tasks = CeilDivide(CeilDivide(rows, Blocks::kTaskRows), slots) * slots;
  row_tasks = std::min(row_tasks, std::max<int64_t>(1, rows / kTaskRowsMin));
  Tasks tasks;
  tasks.rows = std::min<int64_t>(Blocks::kTaskRows,
                                 hwy::RoundUpTo(CeilDivide(rows, row_tasks), Blocks::kRows));
  tasks.row_count = CeilDivide(rows, tasks.rows);
  const int64_t column_tasks = CeilDivide(slots, tasks.row_count);
  tasks.columns = hwy::RoundUpTo(CeilDivide(columns, column_tasks), Blocks::kColumns);
  tasks.count = tasks.row_count * CeilDivide(columns, tasks.columns);
  return tasks;
}

template <typename Word>
struct Workspace {
  Word* panels;
  float* sums;
  Word* rows;  // one stretch of row_words per slot
  int64_t row_words;
};

template <typename Word>
Workspace<Word> WorkspaceAt(const Cut& cut, void* base) {
  static_assert(sizeof(Word) == sizeof(float));
  auto* const words = static_cast<Word*>(base);
  return {words, static_cast<float*>(base) + cut.panel_words,
          words + cut.panel_words + cut.sum_words, cut.row_words};
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

template <typename Blocks, typename T>
void MultiplyTask(const Slice<T>& x, const typename Blocks::Word* panel,
                  typename Blocks::Word* packed_rows) {
  Blocks::PackRows(x.a, x.rows, x.depth, packed_rows);
  for (int64_t j = 0; j < x.columns; j += Blocks::kColumns, panel += Blocks::kPanelWords) {
    const int64_t columns = std::min(Blocks::kColumns, x.columns - j);
    for (int64_t i = 0; i < x.rows; i += Blocks::kRows)
      Blocks::Multiply(std::min(Blocks::kRows, x.rows - i), columns,
                       {.a = packed_rows + i * Blocks::kRowWords,
                        .b = panel,
                        .c = x.sums + i * x.sums_stride + j,
                        .c_stride = x.sums_stride,
                        .depth = x.depth,
                        .accumulate = !x.first});
    if (!x.last) continue;
    for (int64_t i = 0; i < x.rows; ++i)
      FinishRow(x.finish.From(j), x.sums + i * x.sums_stride + j, columns,
                x.c + i * x.c_stride + j);
  }
}

template <typename Blocks, typename T>
void MultiplySlice(const Slice<T>& x, const Workspace<typename Blocks::Word>& workspace,
                   const Team& team) {
  team.ForEach(CeilDivide(x.columns, Blocks::kColumns), [&](int, int64_t panel) {
    const int64_t j = panel * Blocks::kColumns;
    Blocks::PackPanel(x.b.At(0, j), x.depth, std::min(Blocks::kColumns, x.columns - j),
                      workspace.panels + panel * Blocks::kPanelWords);
  });
  const Tasks tasks = CutTasks<Blocks>(x.rows, x.columns, team.slots());
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
    MultiplyTask<Blocks>(part, workspace.panels + j / Blocks::kColumns * Blocks::kPanelWords,
                         workspace.rows + slot * workspace.row_words);
  });
}

template <typename Blocks, typename T>
void MultiplyMatrix(const Cut& cut, const Slice<T>& whole,
                    const Workspace<typename Blocks::Word>& workspace, const Team& team) {
  const Shape& shape = cut.shape;
  for (int64_t j = 0; j < shape.n; j += cut.block_columns) {
    for (int64_t i = 0; i < shape.m; i += cut.block_rows) {
      for (int64_t p = 0; p < shape.k; p += Blocks::kTerms) {
        if ((j > 0 || i > 0 || p > 0) && IsSet(team.stop())) return;
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
        slice.depth = std::min(Blocks::kTerms, shape.k - p);
        slice.first = p == 0;
        slice.last = p + slice.depth == shape.k;
        MultiplySlice<Blocks>(slice, workspace, team);
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

template <typename Blocks, typename T>
void MultiplyBlocked(const Cut& cut, const Operands& operands, void* base, const Team& team) {
  const Finish<T> finish = FinishOf<T>(cut, operands);
  const Shape& shape = cut.shape;
  const auto multiply = [&](int64_t batch, void* at, const Team& own) {
    const Offsets offsets = shape.BatchOffsets(batch);
    Slice<T> whole = {};
    whole.a = {static_cast<const T*>(operands.inputs[0]) + offsets.a, shape.a_row_stride,
               shape.a_column_stride};
    whole.b = {static_cast<const T*>(operands.inputs[1]) + offsets.b, shape.b_row_stride,
               shape.b_column_stride};
    whole.c = static_cast<T*>(operands.outputs[0]) + offsets.c;
    whole.c_stride = shape.n;
    whole.finish = finish;
    MultiplyMatrix<Blocks>(cut, whole, WorkspaceAt<typename Blocks::Word>(cut, at), own);
  };
  if (cut.whole()) {
    const int64_t words_per_slot = cut.WorkspaceWords() / cut.slots;
    team.ForEach(shape.batches(), [&](int slot, int64_t batch) {
      multiply(batch, static_cast<float*>(base) + slot * words_per_slot, team.Alone());
    });
  } else {
    for (int64_t batch = 0; batch < shape.batches(); ++batch) {
      if (batch > 0 && IsSet(team.stop())) return;
      multiply(batch, base, team);
    }
  }
}

void Run(const Cut& cut, DataType type, const Operands& operands, const LaunchContext& context) {
  WARPCALL_DCHECK(operands.inputs.size() == (cut.epilogue.has_value() ? 3u : 2u),
                  operands.inputs.size());
  WARPCALL_DCHECK(cut.WorkspaceWords() == 0 || context.workspace != nullptr, cut.WorkspaceWords());
  Operands ordered = operands;
  if (cut.swapped) std::swap(ordered.inputs[0], ordered.inputs[1]);
  const Team team(cpu::WorkersOf(context), cut.slots);
  DispatchDataType(type, [&]<typename T>(T) {
    if (cut.variant == kFewRows) {
      MultiplySkinny</*kInPairs=*/false, T>(cut.shape, ordered, FinishOf<T>(cut, ordered), team);
      return;
    }
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (cut.variant == kFewPairs)
        return MultiplySkinny</*kInPairs=*/true, T>(cut.shape, ordered, FinishOf<T>(cut, ordered),
                                                    team);
      if (cut.in_tiles()) return MultiplyBlocked<Tiled, T>(cut, ordered, context.workspace, team);
      if (cut.in_pairs()) return MultiplyBlocked<Paired, T>(cut, ordered, context.workspace, team);
    }
    MultiplyBlocked<Widened, T>(cut, ordered, context.workspace, team);
  });
}

}  // namespace warpcall::matmul::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace warpcall::matmul {
namespace {

HWY_EXPORT(MakeCut);
HWY_EXPORT(Run);
HWY_EXPORT(VariantCount);

absl::StatusOr<PlanPtr> MakeSimdPlan(const Problem& problem, const PlanContext& context) {
  if (!NothingToSum(problem)) return PlanSimdTiled(problem, context, std::nullopt);
  RETURN_IF_ERROR(CheckSimdVariant(problem.outputs[0].data_type, context.variant));
  return NewPlan({}, [problem](const Operands& operands, const LaunchContext&) {
    FinishIfNothingToSum(problem, operands);
    return absl::OkStatus();
  });
}

}  // namespace

std::vector<std::string> SimdVariantNames(DataType type) {
  std::vector<std::string> names = {"few rows",
                                    "shared matrix",
                                    "whole matrices",
                                    "few rows in pairs",
                                    "shared matrix in pairs",
                                    "whole matrices in pairs",
                                    "shared matrix in tiles",
                                    "whole matrices in tiles"};
  names.resize(static_cast<size_t>(HWY_DYNAMIC_DISPATCH(VariantCount)(type)));
  return names;
}

absl::Status CheckSimdVariant(DataType type, int variant) {
  if (variant == kRowsChoice) return absl::OkStatus();
  return CheckVariantNumber(variant, HWY_DYNAMIC_DISPATCH(VariantCount)(type));
}

absl::StatusOr<PlanPtr> PlanSimdTiled(const Problem& problem, const PlanContext& context,
                                      const std::optional<Epilogue>& epilogue) {
  RETURN_IF_ERROR(CheckSimdVariant(problem.outputs[0].data_type, context.variant));
  Cut cut = HWY_DYNAMIC_DISPATCH(MakeCut)(problem, *context.device, context.variant);
  cut.epilogue = epilogue;
  const int64_t few_rows_max = HWY_NAMESPACE::SkinnyRowsMax(cut.shape);
  if (cut.variant == kFewRows && cut.shape.m > few_rows_max)
    return absl::InvalidArgumentError(
        absl::StrCat("few rows are up to ", few_rows_max, "; here they are ", cut.shape.m));
  if (cut.variant == kFewPairs && !HWY_NAMESPACE::TakesSkinnyByPairs(cut.shape))
    return absl::InvalidArgumentError(
        absl::StrCat("few rows in pairs are up to ", HWY_NAMESPACE::kRowsOfPairsMax,
                     ", times a b whose k is adjacent; here they are ", cut.shape.m, ", and b is ",
                     cut.shape.b_column_stride == 1 ? "not so" : "so"));
  const Plan::Traits traits = {
      .workspace_bytes = SaturatingBytes(cut.WorkspaceWords(), sizeof(float)),
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
