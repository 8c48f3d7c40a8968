// oneDNN's matmul primitive, executed once per batch that it cannot walk by itself, and in pieces
// where the whole would take long.
#include <algorithm>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/half.h"
#include "kernels/common/saturate.h"
#include "kernels/common/status_macros.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/matmul/matmul.h"

namespace warpcall::matmul {
namespace {

using dnnl::memory;

// oneDNN 2.6 gets batches of bfloat16 with b transposed and n from 49 to 63 wrong on processors
// with AMX (seen on a Xeon of the Sapphire Rapids kind, every time); single products it gets right.
bool TakesBatches(const Shape& shape, DataType type) {
  return type != DataType::kBFloat16 || shape.b_column_stride == 1;
}

// What oneDNN is asked for at once, as it cannot be interrupted: so many neighbours in the fastest
// batch dimension, so many rows of each.
struct Piece {
  int64_t batches;
  int64_t rows;

  bool operator==(const Piece&) const = default;
};

// Some 50 ms of one thread, in float32.
constexpr int64_t kProductsPerThread = int64_t{1} << 31;
// Each piece packs b anew, an element of which costs about as much as 25 products: with fewer rows
// that would count.
constexpr int64_t kPieceRowsMin = 1024;

// The largest piece; others are what is left at the ends. Rows are cut only where a's lie one after
// the other, as oneDNN has no fast product for others.
Piece PieceOf(const Shape& shape, DataType type, const DeviceProperties& device) {
  const int64_t products_max = kProductsPerThread * std::max(1, device.multiprocessors);
  const int64_t row = SaturatingMultiply(shape.n, shape.k);
  const int64_t matrix = SaturatingMultiply(shape.m, row);
  Piece piece = {1, shape.m};
  if (!shape.batch.empty() && TakesBatches(shape, type))
    piece.batches = std::clamp<int64_t>(products_max / matrix, 1, shape.batch.back().size);
  if (matrix > products_max && shape.a_column_stride == 1) {
    const int64_t rows = products_max / row / kPieceRowsMin * kPieceRowsMin;
    piece.rows = std::min(shape.m, std::max(rows, kPieceRowsMin));
  }
  return piece;
}

// The different pieces that make up the whole.
absl::InlinedVector<Piece, 3> PiecesOf(const Shape& shape, const Piece& largest) {
  absl::InlinedVector<Piece, 3> pieces = {largest};
  const int64_t batches = shape.batch.empty() ? 1 : shape.batch.back().size;
  if (batches % largest.batches != 0) pieces.push_back({batches % largest.batches, largest.rows});
  if (shape.m % largest.rows != 0) pieces.push_back({largest.batches, shape.m % largest.rows});
  return pieces;
}

// REQUIRES: c has elements and k > 0. Throws dnnl::error.
absl::StatusOr<dnnl::matmul::primitive_desc> Describe(const Shape& shape, DataType data_type,
                                                      const Piece& piece) {
  const memory::data_type type = onednn::ToOnednn(data_type);
  memory::dims a_dims = {piece.rows, shape.k};
  memory::dims b_dims = {shape.k, shape.n};
  memory::dims c_dims = {piece.rows, shape.n};
  memory::dims a_strides = {shape.a_row_stride, shape.a_column_stride};
  memory::dims b_strides = {shape.b_row_stride, shape.b_column_stride};
  memory::dims c_strides = {shape.n, 1};
  if (piece.batches > 1) {
    const BatchDim& inner = shape.batch.back();
    a_dims.insert(a_dims.begin(), inner.a_stride == 0 ? 1 : piece.batches);
    b_dims.insert(b_dims.begin(), inner.b_stride == 0 ? 1 : piece.batches);
    c_dims.insert(c_dims.begin(), piece.batches);
    a_strides.insert(a_strides.begin(), shape.m * shape.k);
    b_strides.insert(b_strides.begin(), shape.k * shape.n);
    c_strides.insert(c_strides.begin(), inner.c_stride);
  }
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::matmul::primitive_desc descriptor(dnnl::matmul::desc(memory::desc(a_dims, type, a_strides),
                                                             memory::desc(b_dims, type, b_strides),
                                                             memory::desc(c_dims, type, c_strides)),
                                          attributes, onednn::CpuEngine(), /*allow_empty=*/true);
  if (!descriptor)
    return absl::UnimplementedError(
        absl::StrCat("oneDNN ", dnnl::version()->major, ".", dnnl::version()->minor, " has no ",
                     DataTypeName(data_type), " matmul of this form for this processor"));
  return descriptor;
}

// The scratchpad that the largest of the pieces needs. Throws dnnl::error.
absl::StatusOr<size_t> ScratchpadBytes(const Problem& problem, const DeviceProperties& device) {
  const Shape shape = DecodeShape(problem);
  const DataType type = problem.outputs[0].data_type;
  size_t bytes = 0;
  for (const Piece& piece : PiecesOf(shape, PieceOf(shape, type, device))) {
    ASSIGN_OR_RETURN(const auto descriptor, Describe(shape, type, piece));
    bytes = std::max(bytes, descriptor.scratchpad_desc().get_size());
  }
  return bytes;
}

// Whether there is nothing to ask oneDNN for.
bool NothingToSum(const Problem& problem) {
  return problem.outputs[0].elements() == 0 || DecodeShape(problem).k == 0;
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  if (NothingToSum(problem)) return absl::OkStatus();
  absl::Status status;
  RETURN_IF_ERROR(onednn::Guard(absl::StatusCode::kUnimplemented, "matmul",
                                [&] { status = ScratchpadBytes(problem, device).status(); }));
  return status;
}

size_t WorkspaceBytes(const Problem& problem, const DeviceProperties& device) {
  if (NothingToSum(problem)) return 0;
  size_t bytes = 0;  // also where Supports refuses
  onednn::Guard(absl::StatusCode::kInternal, "matmul", [&] {
    bytes = ScratchpadBytes(problem, device).value_or(0);
  }).IgnoreError();
  return bytes;
}

bool IsNan(BFloat16 value) { return (value.bits & 0x7FFF) > 0x7F80; }

bool HasSubnormal(const void* data, int64_t count) {
  const auto* begin = static_cast<const BFloat16*>(data);
  return std::any_of(begin, begin + count, [](BFloat16 value) {
    return (value.bits & 0x7F80) == 0 && (value.bits & 0x007F) != 0;
  });
}

// The processor's bfloat16 dot products (AVX512_BF16, AMX) take subnormal inputs as zero, whatever
// the control register says (Intel SDM, VDPBF16PS). That costs a finite sum less than its
// tolerance, but makes NaN of a subnormal x infinity. Only then, which a scan of the output and the
// inputs tells, the outputs in question are summed again.
void RestoreInfinities(const Problem& problem, const Operands& operands,
                       const cpu::Workers& workers) {
  auto* c = static_cast<BFloat16*>(operands.outputs[0]);
  if (std::none_of(c, c + problem.outputs[0].elements(), IsNan)) return;
  if (!HasSubnormal(operands.inputs[0], problem.inputs[0].elements()) &&
      !HasSubnormal(operands.inputs[1], problem.inputs[1].elements()))
    return;
  const Shape shape = DecodeShape(problem);
  const auto sum_again = [&](int64_t index) {
    const Offsets at = shape.BatchOffsets(index / shape.m);
    const int64_t i = index % shape.m;
    const auto* a =
        static_cast<const BFloat16*>(operands.inputs[0]) + at.a + i * shape.a_row_stride;
    const int64_t columns_per_look = std::max<int64_t>(1, cpu::kElementsPerLook / shape.k);
    for (int64_t j = 0; j < shape.n; ++j) {
      if (j % columns_per_look == 0 && j > 0 && IsSet(workers.stop())) return;
      BFloat16& output = c[at.c + i * shape.n + j];
      if (!IsNan(output)) continue;
      const auto* b =
          static_cast<const BFloat16*>(operands.inputs[1]) + at.b + j * shape.b_column_stride;
      float sum = 0;
      for (int64_t p = 0; p < shape.k && sum == sum; ++p)
        sum += ToFloat(a[p * shape.a_column_stride]) * ToFloat(b[p * shape.b_row_stride]);
      output = FromFloat<BFloat16>(sum);
    }
  };
  workers.ParallelFor(shape.batches() * shape.m, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) sum_again(index);
  });
}

// Multiplies pieces of one size.
class Multiplier {
 public:
  Multiplier(const dnnl::matmul::primitive_desc& descriptor, void* scratchpad)
      : engine_(onednn::CpuEngine()),
        stream_(engine_),
        primitive_(descriptor),
        a_(descriptor.src_desc(), engine_, nullptr),
        b_(descriptor.weights_desc(), engine_, nullptr),
        c_(descriptor.dst_desc(), engine_, nullptr),
        scratchpad_(descriptor.scratchpad_desc(), engine_, scratchpad) {}

  void Run(const void* a, const void* b, void* c) {
    a_.set_data_handle(const_cast<void*>(a));
    b_.set_data_handle(const_cast<void*>(b));
    c_.set_data_handle(c);
    primitive_.execute(stream_, {{DNNL_ARG_SRC, a_},
                                 {DNNL_ARG_WEIGHTS, b_},
                                 {DNNL_ARG_DST, c_},
                                 {DNNL_ARG_SCRATCHPAD, scratchpad_}});
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul primitive_;
  memory a_;
  memory b_;
  memory c_;
  memory scratchpad_;
};

// Calls body(piece, offsets in elements) on one piece after the other, until `stop` is set.
template <typename Body>
absl::Status ForEachPiece(const Shape& shape, const Piece& largest, const StopFlag* stop,
                          Body body) {
  Shape outer = shape;
  BatchDim inner = {.size = 1, .a_stride = 0, .b_stride = 0, .c_stride = 0};
  if (!outer.batch.empty()) {
    inner = outer.batch.back();
    outer.batch.pop_back();
  }
  for (int64_t batch = 0; batch < outer.batches(); ++batch) {
    const Offsets at = outer.BatchOffsets(batch);
    for (int64_t i = 0; i < inner.size; i += largest.batches) {
      for (int64_t row = 0; row < shape.m; row += largest.rows) {
        if (IsSet(stop)) return absl::OkStatus();
        RETURN_IF_ERROR(body(
            Piece{std::min(largest.batches, inner.size - i), std::min(largest.rows, shape.m - row)},
            Offsets{at.a + i * inner.a_stride + row * shape.a_row_stride, at.b + i * inner.b_stride,
                    at.c + i * inner.c_stride + row * shape.n}));
      }
    }
  }
  return absl::OkStatus();
}

// Throws dnnl::error.
absl::Status Execute(const Problem& problem, const Operands& operands,
                     const LaunchContext& context) {
  const Shape shape = DecodeShape(problem);
  const DataType type = problem.outputs[0].data_type;
  const auto element_bytes = static_cast<int64_t>(ElementBytes(type));
  Piece prepared = {0, 0};
  std::optional<Multiplier> multiplier;
  const auto multiply = [&](const Piece& piece, const Offsets& at) -> absl::Status {
    if (!(piece == prepared)) {
      ASSIGN_OR_RETURN(const auto descriptor, Describe(shape, type, piece));
      multiplier.emplace(descriptor, context.workspace);
      prepared = piece;
    }
    multiplier->Run(static_cast<const char*>(operands.inputs[0]) + at.a * element_bytes,
                    static_cast<const char*>(operands.inputs[1]) + at.b * element_bytes,
                    static_cast<char*>(operands.outputs[0]) + at.c * element_bytes);
    return absl::OkStatus();
  };
  return ForEachPiece(shape, PieceOf(shape, type, *context.device), context.stop, multiply);
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (FinishIfNothingToSum(problem, operands)) return absl::OkStatus();
  absl::Status status;
  RETURN_IF_ERROR(onednn::Guard(absl::StatusCode::kInternal, "matmul",
                                [&] { status = Execute(problem, operands, context); }));
  RETURN_IF_ERROR(status);
  if (problem.outputs[0].data_type == DataType::kBFloat16)
    RestoreInfinities(problem, operands, cpu::WorkersOf(context));
  return absl::OkStatus();
}

}  // namespace

Implementation OnednnRow() {
  return {.name = "onednn_matmul",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCpu,
          .summary = "oneDNN's matmul primitive",
          .data_types = {DataType::kFloat32, DataType::kBFloat16},
          .supports = Supports,
          .workspace_bytes = WorkspaceBytes,
          .launch = Launch,
          .shape = nullptr};
}

}  // namespace warpcall::matmul
