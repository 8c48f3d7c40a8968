#include "kernels/matmul/matmul_cuda_wgmma_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/matmul/matmul_cuda_pad.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::matmul {
namespace {

constexpr int32_t kArchitectureHopper = 90;
constexpr int64_t kVectorBytes = 16;
constexpr int64_t kLineBytes = 128;

int64_t BytesOf(DataType type, int64_t elements) {
  return elements * static_cast<int64_t>(ElementBytes(type));
}

// An operand as it lies: matrices of `outer` x k.
struct Lying {
  Adjacent adjacent;
  int64_t outer;
  int64_t k;
  int64_t elements;
  DataType data_type;
  bool along_k;  // as the kernel wants it: if it lies another way, it is turned
};

WgmmaOperand OperandOf(const Lying& lying) {
  const bool turned = lying.adjacent == Adjacent::kOuter && lying.along_k;
  const bool by_outer = lying.adjacent == Adjacent::kOuter && !turned;
  const int64_t columns = by_outer ? lying.outer : lying.k;
  const int64_t rows = by_outer ? lying.k : lying.outer;
  const bool padded = BytesOf(lying.data_type, columns) % kVectorBytes != 0;
  const PaddedRows copy = {lying.elements / columns, columns, ElementBytes(lying.data_type)};
  const bool copied = turned || padded;
  return {.stack = {.data_type = lying.data_type,
                    .columns = columns,
                    .rows = rows,
                    .matrices = lying.elements / (rows * columns),
                    .row_elements = copied ? copy.stride() : columns},
          .adjacent = by_outer ? Adjacent::kOuter : Adjacent::kDepth,
          .box_rows = 0,
          .copy = turned   ? WgmmaCopy::kTurned
                  : padded ? WgmmaCopy::kPadded
                           : WgmmaCopy::kNone,
          .copy_bytes = copied ? copy.bytes() : 0};
}

// Rows of a box where k is adjacent: no more than there are, since those outside of a tensor take
// the accelerator longer than those in it (bfloat16 on an H200: 1x8192x8192 took 44 us with boxes
// of 64 rows, 64x8192x8192 35). A box of the other kind has a row for each term of k.
void SetBox(int rows, WgmmaOperand* operand) {
  const cuda::MatrixStack& stack = operand->stack;
  operand->box_rows = operand->adjacent == Adjacent::kDepth
                          ? static_cast<int>(std::min<int64_t>(rows, stack.rows))
                          : kWgmmaRowBytes / static_cast<int>(ElementBytes(stack.data_type));
}

// Bytes copied for an operand's part of a stage, which has `rows` rows of 128 bytes.
uint32_t BytesCopied(int rows, const WgmmaOperand& operand) {
  const bool few = operand.adjacent == Adjacent::kDepth;
  return static_cast<uint32_t>((few ? std::min(rows, operand.box_rows) : rows) * kWgmmaRowBytes);
}

bool InLines(const WgmmaOperand& operand) {
  return BytesOf(operand.stack.data_type, operand.stack.row_elements) % kLineBytes == 0;
}

// The size in terms of 16-bit types: twice as many terms of k take as long.
Size InHalves(Size size, DataType type) {
  if (type == DataType::kFloat32) size.k = SaturatingMultiply(size.k, 2);
  return size;
}

// Operands lie one matrix after the other, so a stride is so many matrices.
BatchWalk InMatrices(const Arguments& arguments, bool swapped) {
  BatchWalk walk = arguments.batch;
  for (int i = 0; i < walk.rank; ++i) {
    walk.a_stride[i] /= arguments.m * arguments.k;
    walk.b_stride[i] /= arguments.n * arguments.k;
    if (swapped) std::swap(walk.a_stride[i], walk.b_stride[i]);
  }
  return walk;
}

// The reason why variant order.variant cannot take the problem; empty if it can.
std::string Obstacle(const WgmmaOrder& order, const WgmmaTiling& tiling, int64_t halves) {
  const WgmmaChoice variant = order.variants.At(order.variant);
  const WgmmaTile& tile = kWgmmaTiles[variant.tile];
  if (variant.a != tiling.a.adjacent || variant.b != tiling.b.adjacent)
    return "an operand lies the other way";
  const int64_t k = order.arrangement.arguments.k;
  if (!WgmmaCanSplit(tile, halves))
    return absl::StrCat("k is ", k, "; sums of ",
                        (tile.splits() - 1) * kWgmmaDepth / (halves / k) + 1,
                        " terms and more can be cut in ", tile.splits());
  return "";
}

absl::StatusOr<int> VariantFor(const WgmmaOrder& order, const WgmmaTiling& tiling,
                               const Size& halves, const DeviceProperties& device) {
  if (order.variant == kRowsChoice) {
    const WgmmaSize size = {halves, InLines(tiling.a), InLines(tiling.b)};
    return order.variants.NumberOf(
        {.tile = ChooseWgmmaTile(size, std::max(1, device.multiprocessors)),
         .a = tiling.a.adjacent,
         .b = tiling.b.adjacent});
  }
  RETURN_IF_ERROR(CheckVariantNumber(order.variant, order.variants.Count()));
  const std::string obstacle = Obstacle(order, tiling, halves.k);
  if (obstacle.empty()) return order.variant;
  return absl::InvalidArgumentError(absl::StrCat("variant \"",
                                                 NameOf(order.variants, order.variant),
                                                 "\" cannot run this problem: ", obstacle));
}

// Returns true if a, which would be padded, can be read in classes of rows.
bool CanReadInClasses(const WgmmaTiling& tiling, const Size& size) {
  const WgmmaOperand& a = tiling.a;
  if (ElementBytes(a.stack.data_type) != 2 || a.copy != WgmmaCopy::kPadded ||
      a.adjacent != Adjacent::kDepth || tiling.b.adjacent != Adjacent::kOuter ||
      a.stack.matrices != 1 || tiling.tile.splits() > 1 || size.m < kWgmmaClasses)
    return false;
  // The kernel counts rows beyond m, too.
  if (WgmmaSizeInClasses(tiling.tile, size).m > std::numeric_limits<int32_t>::max()) return false;
  for (int i = 0; i < kWgmmaClasses; ++i)
    if (!cuda::CheckMap(WgmmaClassOf(tiling, i).stack).ok()) return false;
  return true;
}

// Has the kernel read a where it lies, in classes of rows, instead of a copy.
void ReadInClasses(WgmmaTiling* tiling) {
  static_assert(kWgmmaClasses * 2 == kVectorBytes);
  cuda::MatrixStack& stack = tiling->a.stack;
  stack.row_elements = stack.columns;
  tiling->a.copy = WgmmaCopy::kNone;
  tiling->a.copy_bytes = 0;
  tiling->geometry.a_past = static_cast<uint32_t>(stack.columns % kWgmmaClasses);
  // A tile's rows of c do not follow each other, as those of a box do.
  tiling->geometry.c_in_boxes = false;
}

// Sets tiles and the grid of a tiling whose tile is known. `size` is in halves, as InHalves has it.
absl::Status SetGrid(const Size& size, const DeviceProperties& device, WgmmaTiling* tiling) {
  const WgmmaTile& tile = tiling->tile;
  const int64_t work = WgmmaWork(tile, size);
  const int64_t work_max = std::numeric_limits<int32_t>::max() / 16;
  if (work > work_max)
    return absl::UnimplementedError(absl::StrCat("the outputs make ", work, " tiles of ", tile.m,
                                                 " x ", tile.n, "; at most ", work_max,
                                                 " are allowed"));
  const int64_t clusters =
      tile.splits() > 1 ? work : std::min(work, WgmmaClustersAtOnce(tile, device.multiprocessors));
  tiling->blocks = static_cast<uint32_t>(clusters * tile.blocks);
  WgmmaGeometry& geometry = tiling->geometry;
  geometry.tiles_m = static_cast<uint32_t>(CeilDivide(size.m, tile.m));
  geometry.tiles_n = static_cast<uint32_t>(CeilDivide(size.n, tile.n));
  geometry.work = static_cast<uint32_t>(work);
  geometry.steps = static_cast<uint32_t>(WgmmaSteps(size.k));
  const auto shared =
      static_cast<uint32_t>(WgmmaSharedTiles(tile, size, std::max(1, device.multiprocessors)));
  geometry.whole = geometry.work - shared;
  geometry.runs = MakeRuns(shared, geometry.steps, static_cast<uint32_t>(clusters));
  geometry.group_rows = WgmmaGroupRows(tile);
  // The kernel's own requirement: a cluster that shares a tile has one, and a step for each block.
  WARPCALL_DCHECK(tile.splits() == 1 || (tiling->is_one_wave() &&
                                         geometry.steps >= static_cast<uint32_t>(tile.splits())),
                  geometry.work, geometry.steps, tile.blocks);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckWgmmaArchitecture(absl::string_view row, const DeviceProperties& device) {
#ifndef WARPCALL_HAS_SM90A
  return absl::UnimplementedError(
      absl::StrCat(row, " is not in this build: no architecture of it is 90a"));
#endif
  if (device.architecture == kArchitectureHopper) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(row, " needs compute capability 9.0, ", device.name,
                                               " has ", device.compute_capability));
}

WgmmaClass WgmmaClassOf(const WgmmaTiling& tiling, int i) {
  const cuda::MatrixStack& all = tiling.a.stack;
  WARPCALL_DCHECK(i >= 0 && i < kWgmmaClasses && all.rows >= kWgmmaClasses, i, all.rows);
  const int64_t past = i * all.columns % kWgmmaClasses;
  return {.stack = {.data_type = all.data_type,
                    .columns = past + all.columns,
                    .rows = CeilDivide(all.rows - i, kWgmmaClasses),
                    .matrices = 1,
                    .row_elements = kWgmmaClasses * all.columns},
          .bytes_before = BytesOf(all.data_type, i * all.columns - past)};
}

absl::StatusOr<WgmmaTiling> MakeWgmmaTiling(const WgmmaOrder& order,
                                            const DeviceProperties& device) {
  WARPCALL_DCHECK(HasSums(order.product));
  const Arguments& arguments = order.arrangement.arguments;
  Size size = SizeOf(arguments);
  const DataType type = order.product.outputs[0].data_type;
  const bool tf32 = type == DataType::kFloat32;
  WgmmaTiling tiling = {};
  Lying a = {.adjacent = order.arrangement.a,
             .outer = size.m,
             .k = size.k,
             .elements = order.product.inputs[0].elements(),
             .data_type = type,
             .along_k = tf32};
  Lying b = {.adjacent = order.arrangement.b,
             .outer = size.n,
             .k = size.k,
             .elements = order.product.inputs[1].elements(),
             .data_type = type,
             .along_k = tf32};
  tiling.c = {.data_type = type,
              .columns = size.n,
              .rows = size.m,
              .matrices = size.batches,
              .row_elements = size.n};
  tiling.geometry.c_in_boxes = BytesOf(type, size.n) % kVectorBytes == 0;
  // The kernel turns an a itself, and c with it: so b is its a.
  tiling.swapped = tf32 && b.adjacent == Adjacent::kOuter;
  if (tiling.swapped) {
    b.along_k = false;
    std::swap(a, b);
    std::swap(size.m, size.n);
  }
  tiling.a = OperandOf(a);
  tiling.b = OperandOf(b);
  for (const cuda::MatrixStack& stack : {tiling.a.stack, tiling.b.stack, tiling.c})
    RETURN_IF_ERROR(cuda::CheckMap(stack));
  const Size halves = InHalves(size, type);
  ASSIGN_OR_RETURN(tiling.variant, VariantFor(order, tiling, halves, device));
  tiling.tile = kWgmmaTiles[order.variants.At(tiling.variant).tile];
  const bool in_classes = CanReadInClasses(tiling, size) &&
                          (order.always_in_classes || WgmmaReadsInClasses(tiling.tile, size));
  if (in_classes) ReadInClasses(&tiling);
  SetBox(tiling.tile.m, &tiling.a);
  SetBox(tiling.tile.n / tiling.tile.across(), &tiling.b);
  tiling.geometry.m = size.m;
  tiling.geometry.n = size.n;
  tiling.geometry.stage_bytes =
      BytesCopied(tiling.tile.m, tiling.a) +
      tiling.tile.across() * BytesCopied(tiling.tile.n / tiling.tile.across(), tiling.b);
  tiling.geometry.batch = InMatrices(arguments, tiling.swapped);
  RETURN_IF_ERROR(
      SetGrid(in_classes ? WgmmaSizeInClasses(tiling.tile, size) : halves, device, &tiling));
  return tiling;
}

namespace {

// Enqueues the operands' copies, all that are padded as one kernel.
absl::Status EnqueueCopies(std::span<const WgmmaOperand* const> operands,
                           std::span<const CopyEnds> ends, const LaunchContext& context) {
  std::vector<Padding> padded;
  for (size_t i = 0; i < operands.size(); ++i) {
    const cuda::MatrixStack& stack = operands[i]->stack;
    PaddedRows rows = {stack.rows, stack.columns, ElementBytes(stack.data_type)};
    if (operands[i]->copy == WgmmaCopy::kPadded) {
      rows.rows *= stack.matrices;
      padded.push_back({rows, ends[i]});
    } else if (operands[i]->copy == WgmmaCopy::kTurned) {
      RETURN_IF_ERROR(EnqueueTurn(rows, stack.matrices, ends[i], context));
    }
  }
  return padded.empty() ? absl::OkStatus() : EnqueuePad(padded, context);
}

absl::Status MakeMapsOfClasses(const WgmmaTiling& tiling, const void* a, CUtensorMap* maps) {
  for (int i = 0; i < kWgmmaClasses; ++i) {
    const WgmmaClass rows = WgmmaClassOf(tiling, i);
    RETURN_IF_ERROR(cuda::MakeMap(rows.stack, static_cast<const char*>(a) + rows.bytes_before,
                                  {tiling.a.box_rows}, &maps[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WgmmaArguments> PrepareWgmma(const WgmmaTiling& tiling, const Operands& operands,
                                            const LaunchContext& context) {
  WgmmaArguments arguments = {};
  arguments.of = tiling.geometry;
  arguments.of.b_is_settled =
      tiling.b.copy_bytes == 0 && (context.settled_inputs >> (tiling.swapped ? 0 : 1) & 1) != 0;
  WARPCALL_DCHECK(tiling.workspace_bytes() == 0 || context.workspace != nullptr,
                  tiling.workspace_bytes());
  char* const workspace = static_cast<char*>(context.workspace);
  const WgmmaOperand* const both[] = {&tiling.a, &tiling.b};
  // A copy is a multiple of 16 bytes, as addresses in maps are.
  const CopyEnds ends[] = {
      {operands.inputs[tiling.swapped ? 1 : 0], workspace},
      {operands.inputs[tiling.swapped ? 0 : 1], workspace + tiling.a.copy_bytes}};
  RETURN_IF_ERROR(EnqueueCopies(both, ends, context));
  const auto make_map = [&](size_t i, CUtensorMap* map) {
    const void* const data = both[i]->copy == WgmmaCopy::kNone ? ends[i].from : ends[i].to;
    return cuda::MakeMap(both[i]->stack, data, {both[i]->box_rows}, map);
  };
  RETURN_IF_ERROR(arguments.of.a_past > 0 ? MakeMapsOfClasses(tiling, ends[0].from, arguments.a)
                                          : make_map(0, &arguments.a[0]));
  RETURN_IF_ERROR(make_map(1, &arguments.b));
  arguments.out = operands.outputs[0];
  arguments.left = workspace + tiling.a.copy_bytes + tiling.b.copy_bytes;
  RETURN_IF_ERROR(LowerFlags(arguments.left, tiling.flag_bytes(), context));
  if (arguments.of.c_in_boxes)
    RETURN_IF_ERROR(cuda::MakeMap(tiling.c, arguments.out, {kWgmmaBoxRows}, &arguments.c));
  return arguments;
}

PlanPtr NewWgmmaPlan(void (*kernel)(WgmmaArguments), const WgmmaTiling& chosen,
                     const PlanContext& context) {
  const WgmmaTiling tiling =
      LaunchedAs(reinterpret_cast<const void*>(kernel), chosen, *context.device);
  return cuda::NewKernelPlan(
      {.workspace_bytes = tiling.workspace_bytes(),
       .variant = tiling.variant,
       .may_be_replayed = true},
      {kernel, tiling.grid(), tiling.gpu_kernels()}, context,
      [kernel, tiling](const Operands& operands, const LaunchContext& launch) -> absl::Status {
        ASSIGN_OR_RETURN(const WgmmaArguments arguments, PrepareWgmma(tiling, operands, launch));
        return LaunchWgmma(kernel, tiling, launch, arguments);
      });
}

std::vector<std::string> NamesOf(const WgmmaVariants& variants) {
  std::vector<std::string> names;
  for (int number = 0; number < variants.Count(); ++number)
    names.push_back(NameOf(variants, number));
  return names;
}

}  // namespace warpcall::matmul
