// register_tiled's kernel on an emulation of its copies and barriers: every tile and layout, edges,
// cut sums, shared tiles, a bias. Products of small integers are exact, so that each output has one
// right value.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_register.cuh"
#include "kernels/matmul/matmul_cuda_tiling.h"
#include "proto/common/half.h"
#include "tests/kernels/emulated/hopper.h"
#include "tests/kernels/exact_product.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::matmul {
namespace {

// A variant's kernel; `bias` may be null.
template <typename T>
using Kernel = void (*)(float* ring, const Arguments& arguments, const T* bias);

template <typename T, int kNumber>
void RunKernel(float* ring, const Arguments& arguments, const T* bias) {
  using Of = RegisterKernel<T, typename RegisterVariantOfKernel<T, kNumber>::Type>;
  if constexpr (sizeof(T) == sizeof(float)) {
    if (bias != nullptr) return Of::Run(ring, arguments, AddBias<T>{bias});
  }
  Of::Run(ring, arguments, NoFinish{});
}

template <typename T, int... kNumbers>
Kernel<T> KernelFrom(int number, std::integer_sequence<int, kNumbers...>) {
  static constexpr Kernel<T> kTable[] = {RunKernel<T, kNumbers>...};
  return kTable[number];
}

template <typename T>
class Product {
 public:
  Product(const ProductSize& size, const ProductForm& form) : of_(size, form) {}

  // Runs the row's choice and every variant that takes the problem. Returns how many variants do.
  int ExpectRight() const {
    int ran = -1;
    for (int variant = kRowsChoice; variant < kRegisterVariantsOf<T>.Count(); ++variant) {
      const absl::StatusOr<Tiling> tiling = TilingOf(variant);
      EXPECT_TRUE(tiling.ok() || variant != kRowsChoice) << tiling.status();
      if (!tiling.ok()) continue;
      // Another kernel finishes sums that are cut.
      if (of_.bias() != nullptr && tiling->choice.splits > 1) continue;
      ++ran;
      ExpectRight(*tiling);
      if (::testing::Test::HasFatalFailure()) break;
    }
    return ran;
  }

  // Runs the largest tile with so many blocks, which share the tiles beyond whole waves.
  void ExpectRightShared(uint32_t blocks) const {
    const Tiling probe = *TilingOf(kRowsChoice);
    Tiling tiling = *TilingOf(kRegisterVariantsOf<T>.NumberOf({.in_vectors = true,
                                                               .tile = 0,
                                                               .a = probe.arrangement.a,
                                                               .b = probe.arrangement.b,
                                                               .cut = false}));
    Arguments& arguments = tiling.arrangement.arguments;
    const auto tiles =
        static_cast<uint32_t>(BlocksOf(tiling.tile, SizeOf(arguments), tiling.choice.splits));
    const uint32_t shared = tiles % blocks;
    ASSERT_TRUE(tiling.tile.may_share() && shared > 0) << tiles;
    arguments.whole = tiles - shared;
    arguments.runs =
        MakeRuns(shared, static_cast<uint32_t>(CeilDivide(arguments.k, tiling.tile.depth)), blocks);
    tiling.blocks = int64_t{arguments.whole} + arguments.runs.count;
    SCOPED_TRACE(absl::StrCat(shared, " tiles shared by ", blocks));
    ExpectRight(tiling);
  }

 private:
  absl::StatusOr<Tiling> TilingOf(int variant) const {
    return RegisterTilingOf(of_.problem(), testing::MadeUpH200(), variant);
  }

  // The operand, or its turned copy.
  static std::vector<T> Placed(const PaddedRows& turned, const std::vector<T>& data) {
    if (turned.rows == 0) return data;
    std::vector<T> copy(turned.bytes() / sizeof(T), FromFloat<T>(NAN));
    for (int64_t row = 0; row < turned.rows; ++row)
      for (int64_t column = 0; column < turned.columns; ++column)
        copy[static_cast<size_t>(row * turned.stride() + column)] =
            data[static_cast<size_t>(column * turned.rows + row)];
    return copy;
  }

  void ExpectRight(const Tiling& tiling) const {
    SCOPED_TRACE(absl::StrCat(NameOf(kRegisterVariantsOf<T>, tiling.variant), " of ", of_.Name()));
    const std::vector<float>& right = of_.right();
    const std::vector<T> a = Placed(tiling.a_turned, of_.input(0));
    const std::vector<T> b = Placed(tiling.b_turned, of_.input(1));
    constexpr size_t kBeyond = 16;
    const T poison = FromFloat<T>(1e9F);
    alignas(16) std::vector<T> out(right.size() + kBeyond, poison);
    Arguments arguments = tiling.arrangement.arguments;
    arguments.a = a.data();
    arguments.b = b.data();
    arguments.c = out.data();
    std::vector<float> partial(right.size() * arguments.splits, NAN);
    arguments.partial = partial.data();
    std::vector<float4> left(
        LeftBytes(arguments.runs.count, tiling.tile.threads(), tiling.tile.m * tiling.tile.n) /
            sizeof(float4),
        {NAN, NAN, NAN, NAN});
    if (!left.empty()) std::memset(left.data(), 0, tiling.left_flag_bytes());
    arguments.left = left.data();
    const Kernel<T> kernel = KernelFrom<T>(
        tiling.variant / 2, std::make_integer_sequence<int, kRegisterVariantsOf<T>.Kernels()>());
    const std::string failure = emulated::Run(
        {.blocks = static_cast<uint32_t>(tiling.blocks),
         .cluster_blocks = 1,
         .threads = static_cast<uint32_t>(tiling.tile.threads())},
        [&] {
          auto* const ring = reinterpret_cast<float*>(emulated::Shared(emulated::kSharedBegin, 16));
          kernel(ring, arguments, of_.bias());
        });
    ASSERT_EQ(failure, "");
    for (size_t i = 0; i < right.size(); ++i) {
      float value = 0;
      for (uint32_t split = 0; split < arguments.splits && arguments.splits > 1; ++split)
        value += partial[split * right.size() + i];
      value = arguments.splits > 1 ? ToFloat(FromFloat<T>(value)) : ToFloat(out[i]);
      ASSERT_EQ(value, right[i]) << "element " << i;
    }
    for (size_t i = right.size(); i < out.size(); ++i)
      ASSERT_EQ(ToFloat(out[i]), ToFloat(poison)) << "beyond the output";
  }

  ExactProduct<T> of_;
};

const ProductForm kForms[] = {{false, false}, {false, true}, {true, false}, {true, true}};

// Whole vectors, which some variants read; edges of tiles, and of a stage of k.
TEST(RegisterEmulatedTest, EveryVariantIsRightInWholeVectors) {
  for (const ProductForm& form : kForms) {
    EXPECT_GE((Product<float>({68, 264, 44}, form).ExpectRight()), 9);
    EXPECT_EQ((Product<BFloat16>({68, 136, 44}, form).ExpectRight()), 4);
  }
}

TEST(RegisterEmulatedTest, EveryVariantIsRightInOddRows) {
  for (const ProductForm& form : kForms) {
    EXPECT_GE((Product<float>({67, 131, 37}, form).ExpectRight()), 6);
    EXPECT_EQ((Product<BFloat16>({67, 131, 37}, form).ExpectRight()), 4);
  }
}

// Four tiles, of which three blocks share one and five share all; and two, which three share, so
// that a run lies in both.
TEST(RegisterEmulatedTest, TilesThatBlocksShareAreRight) {
  for (const ProductForm& form : kForms) {
    for (const uint32_t blocks : {3u, 5u})
      Product<float>({132, 264, 132}, form).ExpectRightShared(blocks);
    Product<float>({132, 128, 84}, form).ExpectRightShared(3);
  }
}

TEST(RegisterEmulatedTest, BatchesAreRight) {
  EXPECT_GT((Product<float>({36, 68, 20}, {.a_batches = {3}}).ExpectRight()), 0);
}

TEST(RegisterEmulatedTest, ABiasIsAddedOnce) {
  Product<float>({131, 263, 20}, {.transpose_b = true, .bias = true}).ExpectRight();
  Product<float>({132, 264, 84}, {.transpose_b = true, .bias = true}).ExpectRightShared(3);
}

}  // namespace
}  // namespace warpcall::matmul
