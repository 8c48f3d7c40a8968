// wgmma_tiled's and wgmma_tf32's kernels on an emulation of Hopper's instructions: the layout of
// operands in shared memory and registers, synchronisation, clusters, tails. Products of small
// integers are exact, so that each output has one right value.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_pad.cuh"
#include "kernels/matmul/matmul_cuda_wgmma.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_plan.h"
#include "proto/common/half.h"
#include "tests/kernels/emulated/hopper.h"
#include "tests/kernels/exact_product.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::matmul {
namespace {

// A variant's kernel; `bias` may be null.
using Kernel = void (*)(const WgmmaArguments& arguments, const void* bias);

template <typename T, typename Variant>
void RunKernel(const WgmmaArguments& arguments, const void* bias) {
  using Of = WgmmaKernel<T, Variant>;
  if constexpr (sizeof(T) == 2) {
    if (bias != nullptr) {
      Of::Run(emulated::kSharedBegin, arguments, AddBias<T>{static_cast<const T*>(bias)});
      return;
    }
  }
  Of::Run(emulated::kSharedBegin, arguments, NoFinish{});
}

template <typename T, WgmmaLayouts kLayouts, int... kNumbers>
Kernel KernelFrom(int variant, std::integer_sequence<int, kNumbers...>) {
  static constexpr Kernel kTable[] = {RunKernel<T, WgmmaVariantAt<kNumbers, kLayouts>>...};
  return kTable[variant];
}

// The copy that a GPU makes of an operand, or the operand.
std::vector<char> Placed(const WgmmaOperand& operand, std::vector<char> data) {
  if (operand.copy == WgmmaCopy::kNone) return data;
  const cuda::MatrixStack& stack = operand.stack;
  const size_t bytes = ElementBytes(stack.data_type);
  std::vector<char> copy(operand.copy_bytes, '\xFF');
  for (int64_t row = 0; row < stack.matrices * stack.rows; ++row)
    for (int64_t column = 0; column < stack.columns; ++column) {
      const int64_t from =
          operand.copy == WgmmaCopy::kPadded
              ? row * stack.columns + column
              : (row / stack.rows * stack.columns + column) * stack.rows + row % stack.rows;
      std::memcpy(&copy.at(static_cast<size_t>(row * stack.row_elements + column) * bytes),
                  &data.at(static_cast<size_t>(from) * bytes), bytes);
    }
  return copy;
}

void MakeMap(const cuda::MatrixStack& stack, char* data, int box_rows, CUtensorMap* map) {
  const auto bytes = static_cast<int32_t>(ElementBytes(stack.data_type));
  const emulated::MatrixMap of = {.data = data,
                                  .columns = stack.columns,
                                  .rows = stack.rows,
                                  .matrices = stack.matrices,
                                  .row_bytes = stack.row_elements * bytes,
                                  .element_bytes = bytes,
                                  .box_columns = kWgmmaRowBytes / bytes,
                                  .box_rows = box_rows};
  ASSERT_EQ(of.row_bytes % 16, 0);
  ASSERT_GE(box_rows, 1);
  ASSERT_LE(box_rows, 256);
  std::memcpy(map, &of, sizeof(of));
}

template <typename T, WgmmaLayouts kLayouts>
class Product {
 public:
  Product(const ProductSize& size, ProductForm form) : of_(size, Precise(std::move(form))) {}

  // Has a be read in classes of rows.
  Product InClasses() && {
    in_classes_ = true;
    return std::move(*this);
  }
  // Lets every third row of a end with an infinity, which belongs to that row's outputs alone.
  Product WithInfinities() && {
    has_infinities_ = true;
    return std::move(*this);
  }

  // Runs the row's choice, and the first `variants` that take it. Returns how many ran.
  int ExpectRight(int variants) {
    int ran = 0;
    for (int variant = kRowsChoice; variant < variants; ++variant) {
      const auto tiling = TilingOf(variant);
      EXPECT_TRUE(tiling.ok() || variant != kRowsChoice) << tiling.status();
      if (!tiling.ok() || (in_classes_ && tiling->geometry.a_past == 0)) continue;
      SCOPED_TRACE(absl::StrCat(NameOf(kVariants, tiling->variant), " of ", of_.Name()));
      ++ran;
      ExpectRight(*tiling);
    }
    return ran;
  }

  // Runs `tile` with so many clusters, which share the tiles beyond whole waves.
  void ExpectRightShared(int tile, uint32_t clusters) {
    const WgmmaTiling probe = *TilingOf(kRowsChoice);
    WgmmaTiling tiling =
        *TilingOf(kVariants.NumberOf({.tile = tile, .a = probe.a.adjacent, .b = probe.b.adjacent}));
    WgmmaGeometry& geometry = tiling.geometry;
    const uint32_t shared = geometry.work % clusters;
    ASSERT_TRUE(tiling.tile.may_share() && shared > 0) << geometry.work;
    ASSERT_EQ(geometry.a_past > 0, in_classes_);
    tiling.blocks = clusters * static_cast<uint32_t>(tiling.tile.blocks);
    geometry.whole = geometry.work - shared;
    geometry.runs = MakeRuns(shared, geometry.steps, clusters);
    SCOPED_TRACE(absl::StrCat(NameOf(kVariants, tiling.variant), " of ", of_.Name(), ": ", shared,
                              " tiles shared by ", clusters));
    ExpectRight(tiling);
  }

 private:
  static constexpr WgmmaVariants kVariants{kLayouts};

  absl::StatusOr<WgmmaTiling> TilingOf(int variant) const {
    return MakeWgmmaTiling({.product = of_.problem(),
                            .arrangement = ArrangementOf(of_.problem()),
                            .variants = kVariants,
                            .variant = variant,
                            .always_in_classes = in_classes_},
                           testing::MadeUpH200());
  }

  static ProductForm Precise(ProductForm form) {
    if (sizeof(T) == 4) form.precision = "tf32";
    return form;
  }

  bool EndsInInfinity(int64_t row) const { return has_infinities_ && row % 3 == 0; }

  std::vector<char> BytesOf(int input) const {
    std::vector<T> values = of_.input(input);
    const Shape shape = DecodeShape(of_.problem());
    for (int64_t row = 0; input == 0 && row < shape.m; ++row)
      if (EndsInInfinity(row))
        values[static_cast<size_t>((row + 1) * shape.k - 1)] = FromFloat<T>(INFINITY);
    const char* const begin = reinterpret_cast<const char*>(values.data());
    return {begin, begin + values.size() * sizeof(T)};
  }

  void ExpectRight(const WgmmaTiling& tiling) const {
    const std::vector<float>& right = of_.right();
    std::vector<char> a = Placed(tiling.a, BytesOf(tiling.swapped ? 1 : 0));
    std::vector<char> b = Placed(tiling.b, BytesOf(tiling.swapped ? 0 : 1));
    const size_t bytes = right.size() * sizeof(T);
    std::vector<char> out(bytes + 64, '\xFF');
    WgmmaArguments arguments = {};
    arguments.of = tiling.geometry;
    // As weights of a graph's layer are.
    arguments.of.b_is_settled = of_.bias() != nullptr || (in_classes_ && !has_infinities_);
    arguments.out = out.data();
    std::vector<float4> left(tiling.left_bytes() / sizeof(float4), {NAN, NAN, NAN, NAN});
    if (!left.empty()) std::memset(left.data(), 0, tiling.flag_bytes());
    arguments.left = left.data();
    if (tiling.geometry.a_past == 0)
      MakeMap(tiling.a.stack, a.data(), tiling.a.box_rows, &arguments.a[0]);
    for (int i = 0; i < kWgmmaClasses && tiling.geometry.a_past > 0; ++i) {
      const WgmmaClass rows = WgmmaClassOf(tiling, i);
      ASSERT_EQ(rows.bytes_before % 16, 0);
      MakeMap(rows.stack, a.data() + rows.bytes_before, tiling.a.box_rows, &arguments.a[i]);
    }
    MakeMap(tiling.b.stack, b.data(), tiling.b.box_rows, &arguments.b);
    if (tiling.geometry.c_in_boxes) MakeMap(tiling.c, out.data(), kWgmmaBoxRows, &arguments.c);
    const Kernel kernel = KernelFrom<T, kLayouts>(
        tiling.variant, std::make_integer_sequence<int, kVariants.Count()>());
    const std::string failure =
        emulated::Run({.blocks = tiling.blocks,
                       .cluster_blocks = static_cast<uint32_t>(tiling.tile.blocks),
                       .threads = static_cast<uint32_t>(tiling.tile.threads())},
                      [&] { kernel(arguments, of_.bias()); });
    ASSERT_EQ(failure, "");
    for (size_t i = 0; i < right.size(); ++i) {
      T value;
      std::memcpy(&value, &out[i * sizeof(T)], sizeof(T));
      if (EndsInInfinity(static_cast<int64_t>(i) / tiling.c.columns)) {
        ASSERT_FALSE(std::isfinite(ToFloat(value))) << "element " << i;
        continue;
      }
      ASSERT_EQ(ToFloat(value), right[i]) << "element " << i;
    }
    for (size_t i = bytes; i < out.size(); ++i) ASSERT_EQ(out[i], '\xFF') << "beyond the output";
  }

  ExactProduct<T> of_;
  bool in_classes_ = false;
  bool has_infinities_ = false;
};

// Number of variants that ran, the row's choice first.
template <typename T, WgmmaLayouts kLayouts>
int ExpectRight(const ProductSize& size, const ProductForm& form) {
  return Product<T, kLayouts>(size, form).ExpectRight(WgmmaVariants{kLayouts}.Count());
}

using InBFloat16 = Product<BFloat16, WgmmaLayouts::kAll>;
constexpr auto kNarrow = ExpectRight<BFloat16, WgmmaLayouts::kAll>;
constexpr auto kWithBias = ExpectRight<BFloat16, WgmmaLayouts::kAlongK>;
constexpr auto kTf32 = ExpectRight<float, WgmmaLayouts::kBAlongK>;

// Sums long enough for eight parts, rows that are no whole vectors, more than one tile of 64; with
// the next test each operand both ways.
TEST(WgmmaEmulatedTest, BFloat16IsRightInEveryVariant) {
  for (const bool transposed : {false, true})
    EXPECT_EQ(kNarrow({33, 67, 451}, {transposed, transposed}), kWgmmaTileCount + 1);
}

TEST(WgmmaEmulatedTest, BFloat16IsRightInWholeVectors) {
  for (const bool transposed : {false, true})
    EXPECT_EQ(kNarrow({16, 72, 456}, {transposed, !transposed}), kWgmmaTileCount + 1);
}

// Rows of a that begin at every element of a vector, or at two of them; c's rows are odd, or whole
// vectors. 521 rows make classes of 66 and 65: a pair of tiles of 64. In every class there are rows
// that lie behind an infinity.
TEST(WgmmaEmulatedTest, ClassesOfRowsAreRightInEveryVariant) {
  const int count = WgmmaVariants{}.Count();
  constexpr int kWhole = 9;  // tiles that do not cut sums
  EXPECT_EQ(InBFloat16({521, 67, 131}, {}).InClasses().WithInfinities().ExpectRight(count),
            kWhole + 1);
  EXPECT_EQ(InBFloat16({261, 72, 140}, {}).InClasses().ExpectRight(count), kWhole + 1);
}

// 8 tiles, or pairs of them, of which the last are shared: two by three clusters, three by five.
// Among the runs are some that begin a tile at its first step of k and some that do not. The
// columns before a row make a fifth step.
TEST(WgmmaEmulatedTest, ClassesOfRowsAreRightInSharedTiles) {
  InBFloat16({133, 67, 255}, {}).InClasses().WithInfinities().ExpectRightShared(0, 3);
  InBFloat16({133, 67, 255}, {}).InClasses().WithInfinities().ExpectRightShared(1, 5);
}

TEST(WgmmaEmulatedTest, ClassesOfRowsAreRightInBatchesOfB) {
  EXPECT_EQ(InBFloat16({67, 24, 71}, {.b_batches = {2}}).InClasses().ExpectRight(0), 1);
}

TEST(WgmmaEmulatedTest, ABiasIsAddedOnceInEveryVariant) {
  EXPECT_EQ(kWithBias({65, 72, 456}, {.transpose_b = true, .bias = true}), kWgmmaTileCount + 1);
  EXPECT_EQ(kWithBias({20, 35, 451}, {.transpose_b = true, .bias = true}), kWgmmaTileCount + 1);
}

// A b[k,n] is turned by the kernel, which then has the operands swapped; an a[k,m] comes turned.
TEST(WgmmaEmulatedTest, Tf32IsRightInEveryVariant) {
  for (const bool transposed : {false, true})
    EXPECT_EQ(kTf32({37, 65, 227}, {transposed, transposed}), kWgmmaTileCount + 1);
}

TEST(WgmmaEmulatedTest, Tf32IsRightInWholeVectors) {
  for (const bool transpose_b : {false, true})
    EXPECT_EQ(kTf32({72, 36, 228}, {false, transpose_b}), kWgmmaTileCount + 1);
}

// Four tiles, of which three clusters share one and five share all; and two of pairs, which three
// clusters share, so that a run lies in both.
TEST(WgmmaEmulatedTest, TilesThatClustersShareAreRight) {
  for (const uint32_t clusters : {3, 5}) {
    const bool transposed = clusters == 5;
    const ProductForm form = {.transpose_a = transposed, .transpose_b = !transposed};
    Product<BFloat16, WgmmaLayouts::kAll>({130, 264, 264}, form).ExpectRightShared(0, clusters);
  }
  Product<BFloat16, WgmmaLayouts::kAll>({130, 259, 195}, {}).ExpectRightShared(1, 3);
  Product<BFloat16, WgmmaLayouts::kAlongK>({130, 264, 200}, {.transpose_b = true, .bias = true})
      .ExpectRightShared(1, 3);
  Product<float, WgmmaLayouts::kBAlongK>({130, 260, 100}, {.transpose_b = true})
      .ExpectRightShared(1, 3);
  // Registers turn b, and so m and n.
  Product<float, WgmmaLayouts::kBAlongK>({260, 130, 100}, {}).ExpectRightShared(1, 3);
}

TEST(WgmmaEmulatedTest, BatchesAreRightWhicheverOperandTheyBelongTo) {
  struct Batches {
    Dims a;
    Dims b;
  };
  for (const Batches& of : {Batches{{2, 1}, {3}}, {{3}, {}}, {{}, {3}}}) {
    const ProductForm form = {.a_batches = of.a, .b_batches = of.b};
    EXPECT_EQ((Product<BFloat16, WgmmaLayouts::kAll>({20, 24, 40}, form).ExpectRight(0)), 1);
    for (const bool transpose_a : {false, true}) {
      ProductForm of_tf32 = form;
      of_tf32.transpose_a = transpose_a;
      EXPECT_EQ((Product<float, WgmmaLayouts::kBAlongK>({20, 24, 40}, of_tf32).ExpectRight(0)), 1);
    }
  }
}

// Rows that begin at each place of a vector, short, and longer than a block's step; two copies.
TEST(PadEmulatedTest, RowsBeginAtVectors) {
  struct Matrix {
    int64_t rows;
    int64_t columns;
  };
  constexpr Matrix kPairs[][2] = {
      {{40, 73}, {73, 49}}, {{3, 2100}, {9, 8}}, {{300, 1}, {1, 17}}, {{5, 2055}, {12, 15}}};
  for (const auto& pair : kPairs) {
    std::vector<std::vector<uint16_t>> from, to;
    std::vector<Padding> copies;
    PadJobs jobs = {};
    uint32_t blocks = 0;
    for (int i = 0; i < 2; ++i) {
      const PaddedRows rows = {pair[i].rows, pair[i].columns, sizeof(uint16_t)};
      from.emplace_back(static_cast<size_t>(rows.rows * rows.columns));
      for (size_t j = 0; j < from[i].size(); ++j)
        from[i][j] = static_cast<uint16_t>(j % 65'000 + 1);
      to.emplace_back(rows.bytes() / sizeof(uint16_t), uint16_t{0xFFFF});
      jobs.of[i] = PadJobOf({rows, {from[i].data(), to[i].data()}});
      blocks += jobs.of[i].blocks();
      if (i == 0) jobs.first_blocks = blocks;
    }
    ASSERT_EQ(emulated::Run({.blocks = blocks, .cluster_blocks = 1, .threads = kPadThreads},
                            [&] { Pad<uint16_t>(jobs); }),
              "");
    for (int i = 0; i < 2; ++i) {
      const PaddedRows rows = {pair[i].rows, pair[i].columns, sizeof(uint16_t)};
      for (int64_t row = 0; row < rows.rows; ++row)
        for (int64_t column = 0; column < rows.stride(); ++column) {
          const uint16_t expected = column < rows.columns
                                        ? from[i][static_cast<size_t>(row * rows.columns + column)]
                                        : (column < CeilDivide(rows.columns, 8) * 8 ? 0 : 0xFFFF);
          ASSERT_EQ(to[i][static_cast<size_t>(row * rows.stride() + column)], expected)
              << "row " << row << " column " << column << " of " << rows.columns;
        }
    }
  }
}

// Tiles whole and not, in both directions and in two matrices.
TEST(TurnEmulatedTest, RowsBecomeColumns) {
  struct Matrix {
    int64_t rows;
    int64_t columns;
  };
  for (const Matrix& of : {Matrix{64, 128}, {65, 63}, {7, 200}, {130, 1}}) {
    const PaddedRows rows = {of.rows, of.columns, sizeof(uint32_t)};
    std::vector<uint32_t> from(static_cast<size_t>(2 * of.rows * of.columns));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint32_t>(i + 1);
    std::vector<uint32_t> to(2 * rows.bytes() / sizeof(uint32_t) + 16, 0);
    const auto blocks = static_cast<uint32_t>(2 * CeilDivide(of.rows, kTurnSide) *
                                              CeilDivide(of.columns, kTurnSide));
    ASSERT_EQ(emulated::Run({.blocks = blocks, .cluster_blocks = 1, .threads = kPadThreads},
                            [&] { Turn(from.data(), to.data(), rows, blocks); }),
              "");
    int64_t written = 0;
    for (const uint32_t word : to) written += word != 0;
    EXPECT_EQ(written, 2 * of.rows * of.columns);
    for (int64_t row = 0; row < 2 * of.rows; ++row)
      for (int64_t column = 0; column < of.columns; ++column) {
        const int64_t source = (row / of.rows * of.columns + column) * of.rows + row % of.rows;
        ASSERT_EQ(to[static_cast<size_t>(row * rows.stride() + column)],
                  static_cast<uint32_t>(source + 1))
            << "row " << row << " column " << column;
      }
  }
}

TEST(HopperTest, ThreadsThatWaitForEverAreTold) {
  const auto body = [] {
    if (threadIdx.x == 0) emulated::InitBarrier(emulated::kSharedBegin, 2);
    __syncthreads();
    if (threadIdx.x == 0) emulated::ArriveAt(0, emulated::kSharedBegin, 0);
    emulated::WaitUntil([] { return emulated::HasEnded(emulated::kSharedBegin, 0); });
  };
  EXPECT_EQ(emulated::Run({.blocks = 1, .cluster_blocks = 1, .threads = 64}, body),
            "block 0: all wait for ever: block 0 thread 0 block 0 thread 32");
}

TEST(HopperTest, ABoxThatBeginsWithinAVectorIsTold) {
  const emulated::MatrixMap of = {.data = nullptr,
                                  .columns = 64,
                                  .rows = 1,
                                  .matrices = 1,
                                  .row_bytes = 128,
                                  .element_bytes = 2,
                                  .box_columns = 64,
                                  .box_rows = 1};
  CUtensorMap map;
  std::memcpy(&map, &of, sizeof(of));
  const auto body = [&map] {
    if (threadIdx.x == 0) LoadBox(&map, {68, 0, 0}, {emulated::kSharedBegin, 0});
  };
  EXPECT_EQ(emulated::Run({.blocks = 1, .cluster_blocks = 1, .threads = 1}, body),
            "block 0: thread 0: a box begins at column 68, within a vector");
}

TEST(HopperTest, ABarrierThatIsWrittenOverIsTold) {
  const auto body = [] {
    emulated::InitBarrier(emulated::kSharedBegin + 8, 1);
    *emulated::Shared(emulated::kSharedBegin + 9, 1) = 0;
  };
  EXPECT_EQ(emulated::Run({.blocks = 1, .cluster_blocks = 1, .threads = 1}, body),
            "block 0: the barrier at 1032 was written over");
}

}  // namespace
}  // namespace warpcall::matmul
