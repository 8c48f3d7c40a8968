// oneDNN's matmul primitive, executed once per batch that it cannot walk by itself, and in pieces
// where the whole would take long.
#include "kernels/matmul/matmul_onednn.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/common/lru_cache.h"
#include "kernels/common/saturate.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/matmul/matmul.h"
#include "kernels/plan.h"
#include "proto/common/check.h"
#include "proto/common/half.h"
#include "proto/common/status_macros.h"

namespace warpcall::matmul {
namespace {

using dnnl::memory;

constexpr size_t kBias = 2;  // index of the input, if there is one

// oneDNN 2.6 gets batches of bfloat16 with b transposed and n from 49 to 63 wrong on processors
// with AMX (seen on a Xeon of the Sapphire Rapids kind, every time); single products it gets right.
bool TakesBatches(const Shape& shape, DataType type) {
  return type != DataType::kBFloat16 || shape.b_column_stride == 1;
}

// A piece of a product, so many neighbours in the fastest batch dimension and so many rows of each.
// oneDNN multiplies one piece at a time, as it cannot be interrupted.
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

// A product's epilogue: nothing, or bias and activation.
using Ending = std::optional<Epilogue>;

dnnl::primitive_attr AttributesOf(const Ending& ending) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (!ending.has_value() || ending->activation == Activation::kNone) return attributes;
  const dnnl::algorithm algorithm =
      ending->activation == Activation::kRelu   ? dnnl::algorithm::eltwise_relu
      : ending->activation == Activation::kGelu ? dnnl::algorithm::eltwise_gelu_tanh
                                                : dnnl::algorithm::eltwise_gelu_erf;
  dnnl::post_ops operations;
  operations.append_eltwise(/*scale=*/1, algorithm, /*alpha=*/0, /*beta=*/0);
  attributes.set_post_ops(operations);
  return attributes;
}

int ThreadsFor(const Shape& shape, const Piece& piece, const DeviceProperties& device) {
  const int64_t rows = SaturatingMultiply(piece.batches, piece.rows);
  return onednn::ThreadsFor(SaturatingMultiply(rows, SaturatingMultiply(shape.n, shape.k)),
                            onednn::kProductsWorthAThread, device.multiprocessors);
}

// REQUIRES: c has elements and k > 0; with an ending there are no batches. Throws dnnl::error.
absl::StatusOr<dnnl::matmul::primitive_desc> Describe(const Shape& shape, DataType data_type,
                                                      const Piece& piece, const Ending& ending) {
  WARPCALL_DCHECK(piece.rows > 0 && shape.n > 0 && shape.k > 0, piece.rows, shape.n, shape.k);
  WARPCALL_DCHECK(!ending.has_value() || shape.batch.empty(), shape.batch.size());
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
  const memory::desc a(a_dims, type, a_strides);
  const memory::desc b(b_dims, type, b_strides);
  const memory::desc c(c_dims, type, c_strides);
  const memory::desc bias({1, shape.n}, type, memory::dims{shape.n, 1});
  dnnl::matmul::primitive_desc descriptor(
      ending.has_value() ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c),
      AttributesOf(ending), onednn::CpuEngine(), /*allow_empty=*/true);
  if (!descriptor)
    return absl::UnimplementedError(
        absl::StrCat("oneDNN ", dnnl::version()->major, ".", dnnl::version()->minor, " has no ",
                     DataTypeName(data_type), " matmul of this form for this processor"));
  return descriptor;
}

// A piece, ready for oneDNN to multiply.
struct Product {
  Piece piece;
  dnnl::matmul::primitive_desc descriptor;
  dnnl::matmul primitive;  // any number of threads may execute it
  cpu::ThreadPool::Guest::Wish threads;
};

// Returns true if the bits depend on the number of threads, as sums are divided among them. Such a
// product takes the threads that it was created for, or other work beside it would change its bits.
// oneDNN 2.6 divides in gemm (319 of 644 problems in float32 by AVX2) and, where k is not adjacent
// in a, in its own code too, "brg" (165 of 1288; elsewhere none).
bool DividesSums(const Shape& shape, const dnnl::matmul::primitive_desc& descriptor) {
  return shape.a_column_stride != 1 || !absl::StartsWith(descriptor.impl_info_str(), "brg");
}

// Products of every size of piece, the largest first. Throws dnnl::error.
absl::StatusOr<std::vector<Product>> ProductsOf(const Shape& shape, DataType type,
                                                const DeviceProperties& device,
                                                const Ending& ending) {
  std::vector<Product> products;
  for (const Piece& piece : PiecesOf(shape, PieceOf(shape, type, device))) {
    const int threads = ThreadsFor(shape, piece, device);
    onednn::UseThreads(threads);
    ASSIGN_OR_RETURN(const auto descriptor, Describe(shape, type, piece, ending));
    products.push_back({piece,
                        descriptor,
                        dnnl::matmul(descriptor),
                        {.max = threads, .min = DividesSums(shape, descriptor) ? threads : 1}});
  }
  return products;
}

// Problems that oneDNN accepts, by activation and processors: asking costs some 20 us, and `auto`
// asks for each request. A refusal is not kept: it may be for lack of memory.
struct Accepted {
  using Question = std::tuple<Problem, int, int>;
  static constexpr size_t kProblemsMax = 256;

  absl::Mutex mutex;
  LruCache<Question, bool> known ABSL_GUARDED_BY(mutex){kProblemsMax};
};

absl::Status Ask(const Problem& problem, const DeviceProperties& device, const Ending& ending) {
  const Shape shape = DecodeShape(problem);
  const DataType type = problem.outputs[0].data_type;
  absl::Status status;
  RETURN_IF_ERROR(onednn::Guard(absl::StatusCode::kUnimplemented, "matmul", [&] {
    for (const Piece& piece : PiecesOf(shape, PieceOf(shape, type, device)))
      status.Update(Describe(shape, type, piece, ending).status());
  }));
  return status;
}

absl::Status Check(const Problem& problem, const DeviceProperties& device, const Ending& ending) {
  if (NothingToSum(problem)) return absl::OkStatus();
  static Accepted& accepted = *new Accepted;
  const int activation = ending.has_value() ? static_cast<int>(ending->activation) : -1;
  const Accepted::Question question(problem, activation, device.multiprocessors);
  {
    const absl::MutexLock lock(&accepted.mutex);
    if (accepted.known.Find(question) != nullptr) return absl::OkStatus();
  }
  RETURN_IF_ERROR(Ask(problem, device, ending));
  const absl::MutexLock lock(&accepted.mutex);
  accepted.known.Insert(question, true);
  return absl::OkStatus();
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  return Check(problem, device, std::nullopt);
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
// tolerance, but makes NaN of a subnormal x infinity. A scan of the output and the inputs finds
// such outputs, which are summed again.
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
  // `bias` is null where none is added.
  Multiplier(const Product& product, const void* bias, void* scratchpad)
      : engine_(onednn::CpuEngine()),
        stream_(engine_),
        primitive_(product.primitive),
        a_(product.descriptor.src_desc(), engine_, nullptr),
        b_(product.descriptor.weights_desc(), engine_, nullptr),
        c_(product.descriptor.dst_desc(), engine_, nullptr),
        arguments_({{DNNL_ARG_SRC, a_},
                    {DNNL_ARG_WEIGHTS, b_},
                    {DNNL_ARG_DST, c_},
                    {DNNL_ARG_SCRATCHPAD,
                     memory(product.descriptor.scratchpad_desc(), engine_, scratchpad)}}) {
    if (bias == nullptr) return;
    arguments_.emplace(DNNL_ARG_BIAS,
                       memory(product.descriptor.bias_desc(), engine_, const_cast<void*>(bias)));
  }

  void Run(const void* a, const void* b, void* c) {
    a_.set_data_handle(const_cast<void*>(a));
    b_.set_data_handle(const_cast<void*>(b));
    c_.set_data_handle(c);
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul primitive_;
  memory a_;
  memory b_;
  memory c_;
  std::unordered_map<int, memory> arguments_;  // which share the handles above
};

// Calls body(piece, offsets in elements) on one piece after the other, until `stop` is set.
template <typename Body>
void ForEachPiece(const Shape& shape, const Piece& largest, const StopFlag* stop, Body body) {
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
        if (IsSet(stop)) return;
        body(
            Piece{std::min(largest.batches, inner.size - i), std::min(largest.rows, shape.m - row)},
            Offsets{at.a + i * inner.a_stride + row * shape.a_row_stride, at.b + i * inner.b_stride,
                    at.c + i * inner.c_stride + row * shape.n});
      }
    }
  }
}

class OnednnPlan final : public warpcall::Plan {
 public:
  OnednnPlan(const Traits& traits, Problem problem, std::vector<Product> products, bool has_ending)
      : warpcall::Plan(traits),
        problem_(std::move(problem)),
        shape_(DecodeShape(problem_)),
        products_(std::move(products)),
        has_ending_(has_ending) {}

  absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
    RETURN_IF_ERROR(
        onednn::Guard(absl::StatusCode::kInternal, "matmul", [&] { Multiply(operands, context); }));
    if (problem_.outputs[0].data_type == DataType::kBFloat16 && !has_ending_)
      RestoreInfinities(problem_, operands, cpu::WorkersOf(context));
    return absl::OkStatus();
  }

 private:
  // Throws dnnl::error.
  void Multiply(const Operands& operands, const LaunchContext& context) const {
    const auto element_bytes = static_cast<int64_t>(ElementBytes(problem_.outputs[0].data_type));
    const void* const bias = has_ending_ ? operands.inputs[kBias] : nullptr;
    const Product* prepared = nullptr;
    std::optional<Multiplier> multiplier;
    ForEachPiece(
        shape_, products_[0].piece, context.stop, [&](const Piece& piece, const Offsets& at) {
          if (prepared == nullptr || !(piece == prepared->piece)) {
            const auto found =
                std::find_if(products_.begin(), products_.end(),
                             [&](const Product& product) { return product.piece == piece; });
            WARPCALL_CHECK(found != products_.end(), piece.batches, piece.rows);
            prepared = &*found;
            multiplier.emplace(*prepared, bias, context.workspace);
          }
          const onednn::Team team(context, prepared->threads);
          multiplier->Run(static_cast<const char*>(operands.inputs[0]) + at.a * element_bytes,
                          static_cast<const char*>(operands.inputs[1]) + at.b * element_bytes,
                          static_cast<char*>(operands.outputs[0]) + at.c * element_bytes);
        });
  }

  const Problem problem_;
  const Shape shape_;
  const std::vector<Product> products_;  // the largest piece's first
  const bool has_ending_;
};

absl::StatusOr<PlanPtr> PlanProducts(const Problem& problem, const PlanContext& context,
                                     const Ending& ending) {
  const Shape shape = DecodeShape(problem);
  const DataType type = problem.outputs[0].data_type;
  absl::StatusOr<std::vector<Product>> products;
  RETURN_IF_ERROR(onednn::Guard(absl::StatusCode::kUnimplemented, "matmul", [&] {
    products = ProductsOf(shape, type, *context.device, ending);
  }));
  if (!products.ok()) return std::move(products).status();
  size_t scratchpad_bytes = 0;
  for (const Product& product : *products)
    scratchpad_bytes = std::max(scratchpad_bytes, product.descriptor.scratchpad_desc().get_size());
  return std::make_shared<const OnednnPlan>(
      warpcall::Plan::Traits{.workspace_bytes = scratchpad_bytes, .is_compiled = true}, problem,
      *std::move(products), ending.has_value());
}

absl::StatusOr<PlanPtr> MakeOnednnPlan(const Problem& problem, const PlanContext& context) {
  if (!NothingToSum(problem)) return PlanProducts(problem, context, std::nullopt);
  return NewPlan({}, [problem](const Operands& operands, const LaunchContext&) {
    FinishIfNothingToSum(problem, operands);
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status CheckOnednn(const Problem& problem, const DeviceProperties& device,
                         const Epilogue& epilogue) {
  return Check(problem, device, epilogue);
}

absl::StatusOr<PlanPtr> PlanOnednn(const Problem& problem, const PlanContext& context,
                                   const Epilogue& epilogue) {
  return PlanProducts(problem, context, epilogue);
}

Implementation OnednnRow() {
  return {.name = "onednn_matmul",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCpu,
          .summary = "oneDNN's matmul primitive; bfloat16's subnormals count as 0",
          .data_types = {DataType::kFloat32, DataType::kBFloat16},
          .supports = Supports,
          .plan = MakeOnednnPlan};
}

}  // namespace warpcall::matmul
