// Vectorised (Highway), compiled per instruction set and chosen at run time. How the work is shared
// out:
//   enough rows     threads take rows; a row stays in one core's caches
//   few wide rows   threads take blocks of rows in two passes, partial results in the workspace
#include "kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/norm_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/saturate.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/norm/norm_simd.h"
#include "kernels/norm/norm_simd_rows-inl.h"
#include "kernels/plan.h"
#include "proto/common/status_macros.h"

#if HWY_ONCE
namespace warpcall::norm {
namespace {

HWY_EXPORT(Rows);
HWY_EXPORT(ReducePiece);
HWY_EXPORT(FinishRow);
HWY_EXPORT(WritePiece);

constexpr int64_t kGrain = 16 * 1024;  // elements: some 10 us for one thread

// Results that no cache holds until they are read anyway go straight to memory, as softmax's.
constexpr size_t kStreamBytesMin = size_t{8} << 20;

// Rows are split when handing them out whole would leave threads idle and each is worth several
// blocks.
bool SplitsRows(const View& view, const DeviceProperties& device) {
  return view.rows < 2 * int64_t{device.multiprocessors} && view.n >= 4 * kBlock;
}

void LaunchRows(const Tensors& tensors, const cpu::Workers& workers) {
  workers.ParallelFor(tensors.view.rows, CeilDivide(kGrain, tensors.view.n),
                      [&](int64_t first, int64_t last) {
                        HWY_DYNAMIC_DISPATCH(Rows)({tensors, first, last});
                      });
}

// The workspace: a normalizer for each row, then a partial for each block.
struct SplitMemory {
  Normalizer* normalizers;
  Partial* partials;
};

void LaunchSplitRows(const Tensors& tensors, const SplitMemory& memory,
                     const cpu::Workers& workers) {
  const View& view = tensors.view;
  const int64_t blocks = CeilDivide(view.n, kBlock);
  const auto piece_at = [&](int64_t i) {
    const int64_t row = i / blocks;
    const int64_t first = i % blocks * kBlock;
    return RowPiece{tensors,
                    row,
                    first,
                    std::min(first + kBlock, view.n),
                    &memory.partials[i],
                    &memory.normalizers[row]};
  };
  workers.ParallelFor(view.rows * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) HWY_DYNAMIC_DISPATCH(ReducePiece)(piece_at(i));
  });
  workers.ParallelFor(view.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Partial* const of_row = memory.partials + row * blocks;
      for (int64_t i = 1; i < blocks; ++i) of_row[0] = Merge(of_row[0], of_row[i]);
      HWY_DYNAMIC_DISPATCH(FinishRow)(piece_at(row * blocks));
    }
  });
  workers.ParallelFor(view.rows * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) HWY_DYNAMIC_DISPATCH(WritePiece)(piece_at(i));
  });
}

// The ways to share out the work. A row of one block is read once, a longer one twice.
enum class Sharing : uint8_t { kShortRows, kLongRows, kSplitRows };

struct SimdVariant {
  Sharing sharing;
  bool stream;  // results bypass the caches
};
constexpr int kVariantCount = 6;

constexpr SimdVariant VariantAt(int number) {
  return {static_cast<Sharing>(number / 2), number % 2 == 1};
}
constexpr int NumberOf(const SimdVariant& variant) {
  return 2 * static_cast<int>(variant.sharing) + (variant.stream ? 1 : 0);
}

std::vector<std::string> Names(DataType) {
  return {"short rows",         "short rows streamed", "long rows",
          "long rows streamed", "split rows",          "split rows streamed"};
}

Sharing WholeRows(const View& view) {
  return view.n <= kBlock ? Sharing::kShortRows : Sharing::kLongRows;
}

int Chosen(const Problem& problem, const DeviceProperties& device) {
  const View view = ViewOf(problem);
  return NumberOf({SplitsRows(view, device) ? Sharing::kSplitRows : WholeRows(view),
                   problem.inputs[kX].bytes() >= kStreamBytesMin});
}

absl::Status Takes(const View& view, int variant) {
  RETURN_IF_ERROR(CheckVariantNumber(variant, kVariantCount));
  const Sharing sharing = VariantAt(variant).sharing;
  if (sharing == Sharing::kSplitRows || sharing == WholeRows(view)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "short rows have up to ", kBlock, " elements, long ones more; here they have ", view.n));
}

size_t WorkspaceBytes(const View& view, Sharing sharing) {
  if (sharing != Sharing::kSplitRows) return 0;
  const size_t per_row =
      sizeof(Normalizer) + SaturatingBytes(CeilDivide(view.n, kBlock), sizeof(Partial));
  return SaturatingBytes(view.rows, per_row);
}

absl::StatusOr<PlanPtr> MakeSimdPlan(const Problem& problem, const PlanContext& context) {
  const TensorSpec& spec = problem.inputs[kX];
  if (spec.elements() == 0) return PlanNothing();
  const View view = ViewOf(problem);
  ASSIGN_OR_RETURN(const int number,
                   VariantToPlan(context, Chosen(problem, *context.device),
                                 [&](int variant) { return Takes(view, variant); }));
  const SimdVariant variant = VariantAt(number);
  const Plan::Traits traits = {.workspace_bytes = WorkspaceBytes(view, variant.sharing),
                               .variant = number};
  return NewPlan(traits, [view, variant, type = spec.data_type](const Operands& operands,
                                                                const LaunchContext& launch) {
    const Tensors tensors{.x = operands.inputs[kX],
                          .weight = operands.inputs[kWeight],
                          .bias = view.centered ? operands.inputs[kBias] : nullptr,
                          .y = operands.outputs[0],
                          .data_type = type,
                          .view = view,
                          .stream = variant.stream,
                          .stop = launch.stop};
    const cpu::Workers workers = cpu::WorkersOf(launch);
    if (variant.sharing == Sharing::kSplitRows) {
      auto* const normalizers = static_cast<Normalizer*>(launch.workspace);
      LaunchSplitRows(tensors, {normalizers, reinterpret_cast<Partial*>(normalizers + view.rows)},
                      workers);
    } else {
      LaunchRows(tensors, workers);
    }
    return absl::OkStatus();
  });
}

}  // namespace

void NormalizeRows(const RowRange& rows) { HWY_DYNAMIC_DISPATCH(Rows)(rows); }

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

}  // namespace warpcall::norm
#endif  // HWY_ONCE
