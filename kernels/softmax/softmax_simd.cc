// Vectorised (Highway), compiled per instruction set and chosen at run time. How the work is shared
// out:
//   last axis, enough rows     threads take rows; a row stays in one core's caches
//   last axis, few wide rows   threads take blocks of rows in two passes; partial results are in
//                              the workspace
//   any other axis             threads take slabs of columns
#include "kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax/softmax_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/saturate.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/plan.h"
#include "kernels/softmax/softmax_simd.h"
#include "kernels/softmax/softmax_simd_columns-inl.h"
#include "kernels/softmax/softmax_simd_rows-inl.h"
#include "proto/common/status_macros.h"

#if HWY_ONCE
namespace warpcall::softmax {
namespace {

HWY_EXPORT(Rows);
HWY_EXPORT(ReducePiece);
HWY_EXPORT(WritePiece);
HWY_EXPORT(Columns);

constexpr int64_t kGrain = 16 * 1024;  // elements: some 10 us for one thread

// Results that no cache holds until they are read anyway go straight to memory, which saves reading
// the line first: on one core of a 2.7 GHz Xeon with AVX-512, 4096 x 4096 floats took 0.8 of the
// time with ordinary stores, 16-bit types 0.95.
constexpr size_t kStreamBytesMin = size_t{8} << 20;

// Rows are split when handing them out whole would leave threads idle and each is worth several
// blocks.
bool SplitsRows(const View& view, const DeviceProperties& device) {
  return view.outer < 2 * int64_t{device.multiprocessors} && view.n >= 4 * kBlock;
}

void LaunchRows(const Tensors& tensors, const cpu::Workers& workers) {
  workers.ParallelFor(tensors.view.outer, CeilDivide(kGrain, tensors.view.n),
                      [&](int64_t first, int64_t last) {
                        HWY_DYNAMIC_DISPATCH(Rows)({tensors, first, last});
                      });
}

void LaunchSplitRows(const Tensors& tensors, Partial* partials, const cpu::Workers& workers) {
  const View& view = tensors.view;
  const int64_t blocks = CeilDivide(view.n, kBlock);
  const int64_t pieces = view.outer * blocks;
  const auto piece_at = [&](int64_t i) {
    const int64_t first = i % blocks * kBlock;
    return RowPiece{tensors, i / blocks, first, std::min(first + kBlock, view.n), nullptr};
  };
  workers.ParallelFor(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      RowPiece piece = piece_at(i);
      piece.partial = &partials[i];
      HWY_DYNAMIC_DISPATCH(ReducePiece)(piece);
    }
  });
  for (int64_t row = 0; row < view.outer; ++row) {  // some 10 ns a block of 8192 elements
    Partial* const of_row = partials + row * blocks;
    for (int64_t i = 1; i < blocks; ++i) of_row[0] = Merge(of_row[0], of_row[i]);
  }
  workers.ParallelFor(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      RowPiece piece = piece_at(i);
      piece.partial = &partials[piece.row * blocks];
      HWY_DYNAMIC_DISPATCH(WritePiece)(piece);
    }
  });
}

void LaunchColumns(const Tensors& tensors, const cpu::Workers& workers) {
  const View& view = tensors.view;
  const int64_t slabs = CeilDivide(view.inner, kColumns);
  const int64_t slab_elements = SaturatingMultiply(view.n, std::min(kColumns, view.inner));
  workers.ParallelFor(view.outer * slabs, CeilDivide(kGrain, slab_elements),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          const int64_t first = i % slabs * kColumns;
                          HWY_DYNAMIC_DISPATCH(Columns)
                          ({tensors, i / slabs, first, std::min(first + kColumns, view.inner)});
                        }
                      });
}

// The ways to share out the work. A row of one block is read once, a longer one twice.
enum class Sharing : uint8_t { kShortRows, kLongRows, kSplitRows, kColumns };

struct SimdVariant {
  Sharing sharing;
  bool stream;  // results of rows bypass the caches
};
constexpr int kVariantCount = 7;

constexpr SimdVariant VariantAt(int number) {
  return {static_cast<Sharing>(number / 2), number % 2 == 1};
}
constexpr int NumberOf(const SimdVariant& variant) {
  return 2 * static_cast<int>(variant.sharing) + (variant.stream ? 1 : 0);
}

Sharing UnsplitRows(const View& view) {
  return view.n <= kBlock ? Sharing::kShortRows : Sharing::kLongRows;
}

std::vector<std::string> Names(DataType) {
  return {"short rows", "short rows streamed", "long rows", "long rows streamed",
          "split rows", "split rows streamed", "columns"};
}

int Chosen(const Problem& problem, const DeviceProperties& device) {
  const View view = ViewOf(problem);
  if (view.inner > 1) return NumberOf({Sharing::kColumns, false});
  return NumberOf({SplitsRows(view, device) ? Sharing::kSplitRows : UnsplitRows(view),
                   problem.inputs[0].bytes() >= kStreamBytesMin});
}

absl::Status Takes(const Problem& problem, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, kVariantCount));
  const View view = ViewOf(problem);
  const Sharing sharing = VariantAt(variant).sharing;
  if (sharing == Sharing::kColumns) return absl::OkStatus();
  if (view.inner > 1)
    return absl::InvalidArgumentError(absl::StrCat(
        "rows of contiguous elements are asked for; here they are ", view.inner, " apart"));
  if (sharing == Sharing::kSplitRows || sharing == UnsplitRows(view)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "short rows have up to ", kBlock, " elements, long ones more; here they have ", view.n));
}

size_t WorkspaceBytes(const View& view, const SimdVariant& variant) {
  if (variant.sharing != Sharing::kSplitRows) return 0;
  return SaturatingBytes(view.outer * CeilDivide(view.n, kBlock), sizeof(Partial));
}

absl::StatusOr<PlanPtr> MakeSimdPlan(const Problem& problem, const PlanContext& context) {
  const TensorSpec& spec = problem.inputs[0];
  if (spec.elements() == 0) return PlanNothing();
  if (context.variant != kRowsChoice) RETURN_IF_ERROR(Takes(problem, context.variant));
  const View view = ViewOf(problem);
  const int number =
      context.variant == kRowsChoice ? Chosen(problem, *context.device) : context.variant;
  const SimdVariant variant = VariantAt(number);
  const Plan::Traits traits = {.workspace_bytes = WorkspaceBytes(view, variant), .variant = number};
  return NewPlan(traits, [view, variant, type = spec.data_type](const Operands& operands,
                                                                const LaunchContext& launch) {
    const Tensors tensors{.x = operands.inputs[0],
                          .y = operands.outputs[0],
                          .data_type = type,
                          .view = view,
                          .stream = variant.stream,
                          .stop = launch.stop};
    const cpu::Workers workers = cpu::WorkersOf(launch);
    if (variant.sharing == Sharing::kColumns) {
      LaunchColumns(tensors, workers);
    } else if (variant.sharing == Sharing::kSplitRows) {
      LaunchSplitRows(tensors, static_cast<Partial*>(launch.workspace), workers);
    } else {
      LaunchRows(tensors, workers);
    }
    return absl::OkStatus();
  });
}

}  // namespace

Implementation SimdRowsRow() {
  return {.name = "simd_rows",
          .family = Family::kCpu,
          .device_kind = DeviceKind::kCpu,
          .summary = "rows in cache, vectorised for the CPU at hand, all threads",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .variant_names = Names,
          .plan = MakeSimdPlan};
}

}  // namespace warpcall::softmax
#endif  // HWY_ONCE
