// matmul's loop over AMX's tiles, on a stand-in that follows Intel's manual: only the encoding of
// the processor's own instructions is left to a machine that has them. Operands are packed as for
// pairs, whose instructions the processor needs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/matmul/matmul_simd_tile_loop.h"
#include "kernels/matmul/matmul_simd_tiles.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"

namespace warpcall::matmul {
namespace {

using warpcall::testing::Memory;

// Eight tiles of 16 rows of 64 bytes. Nothing in them is known outside a session.
class StandIn {
 public:
  class Session {
   public:
    Session() {
      EXPECT_FALSE(configured_);
      configured_ = true;
      std::memset(tiles_, 0xFF, sizeof(tiles_));  // NaN
    }
    ~Session() { configured_ = false; }
  };

  template <int kTile>
  static void Zero() {
    EXPECT_TRUE(configured_);
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  static void Load(const void* from, int64_t stride_bytes) {
    for (int64_t i = 0; i < 16; ++i)
      std::memcpy(tiles_[kTile][i], static_cast<const char*>(from) + i * stride_bytes, 64);
  }
  template <int kTile>
  static void Store(void* to, int64_t stride_bytes) {
    EXPECT_TRUE(configured_);
    for (int64_t i = 0; i < 16; ++i)
      std::memcpy(static_cast<char*>(to) + i * stride_bytes, tiles_[kTile][i], 64);
  }
  // Intel SDM, TDPBF16PS: low and high halves are summed apart, and all that is subnormal is 0.
  template <int kSums, int kA, int kB>
  static void AddProducts() {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) {
        float halves[2] = {0, 0};
        for (int p = 0; p < 16; ++p)
          for (const int half : {0, 1})
            halves[half] = Flushed(
                std::fma(Half(tiles_[kA][i][p], half), Half(tiles_[kB][p][j], half), halves[half]));
        float sum;
        std::memcpy(&sum, &tiles_[kSums][i][j], sizeof(sum));
        sum = Flushed(Flushed(sum) + Flushed(halves[0] + halves[1]));
        std::memcpy(&tiles_[kSums][i][j], &sum, sizeof(sum));
      }
    }
  }

 private:
  static float Flushed(float value) { return std::fabs(value) < 0x1p-126f ? 0 : value; }
  static float Half(uint32_t word, int half) {
    return Flushed(ToFloat(BFloat16{static_cast<uint16_t>(half == 0 ? word : word >> 16)}));
  }

  inline static bool configured_ = false;
  inline static uint32_t tiles_[8][16][16];
};

class MatmulTilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!pairs::Available()) GTEST_SKIP() << "this processor has no AVX512_BF16";
  }
};

struct PackedSize {
  int64_t rows;
  int64_t depth;
  int64_t columns;
};

constexpr int64_t kStride = 80;  // c's row length: data behind a panel must stay
constexpr float kBefore = 7;

// a[rows, depth] and b[depth, columns], packed in memory that was full of NaN, and c.
struct Packed {
  Packed(const PackedSize& size, const std::vector<float>& a, const std::vector<float>& b)
      : rows(tiles::kTileRows * pairs::kRowWords * sizeof(uint32_t)),
        panel(pairs::kPanelWords * sizeof(uint32_t)),
        c(static_cast<size_t>((size.rows + 1) * kStride), kBefore) {
    rows.Poison(0xFF);
    panel.Poison(0xFF);
    pairs::PackRows({Rounded(a).data(), size.depth, 1}, size.rows, size.depth,
                    static_cast<uint32_t*>(rows.data()));
    pairs::PackPanel({Rounded(b).data(), size.columns, 1}, size.depth, size.columns,
                     static_cast<uint32_t*>(panel.data()));
  }

  void Multiply(const PackedSize& size, bool accumulate) {
    tiles::MultiplyByTiles<StandIn>(size.rows, size.columns,
                                    {.a = static_cast<const uint32_t*>(rows.data()),
                                     .b = static_cast<const uint32_t*>(panel.data()),
                                     .c = c.data(),
                                     .c_stride = kStride,
                                     .depth = size.depth,
                                     .accumulate = accumulate});
  }

  static std::vector<BFloat16> Rounded(const std::vector<float>& values) {
    std::vector<BFloat16> rounded;
    for (const float value : values) rounded.push_back(FromFloat<BFloat16>(value));
    return rounded;
  }

  Memory rows;
  Memory panel;
  std::vector<float> c;
};

void ExpectIntegers(const PackedSize& size, bool accumulate, std::mt19937_64& random) {
  SCOPED_TRACE(::testing::Message() << size.rows << " x " << size.depth << " x " << size.columns
                                    << (accumulate ? ", added" : ""));
  const auto integers = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 5) - 2);
    return values;
  };
  const std::vector<float> a = integers(size.rows * size.depth);
  const std::vector<float> b = integers(size.depth * size.columns);
  Packed packed(size, a, b);
  packed.Multiply(size, accumulate);
  const int64_t written = (size.columns + 15) / 16 * 16;
  for (int64_t i = 0; i <= size.rows; ++i) {
    for (int64_t j = 0; j < kStride; ++j) {
      if (i < size.rows && j >= size.columns && j < written) continue;
      float expected = kBefore;
      if (i < size.rows && j < size.columns) {
        expected = accumulate ? kBefore : 0;
        for (int64_t p = 0; p < size.depth; ++p)
          expected += a[static_cast<size_t>(i * size.depth + p)] *
                      b[static_cast<size_t>(p * size.columns + j)];
      }
      ASSERT_EQ(packed.c[static_cast<size_t>(i * kStride + j)], expected) << i << ", " << j;
    }
  }
}

TEST_F(MatmulTilesTest, EveryEdgeOfBlocksAndTiles) {
  std::mt19937_64 random(warpcall::testing::RunSeed());
  for (int64_t rows = 1; rows <= tiles::kTileRows; ++rows)
    ExpectIntegers({rows, 37, 33}, false, random);
  for (int64_t columns = 1; columns <= pairs::kPanelColumns; ++columns)
    ExpectIntegers({17, 5, columns}, columns % 2 == 0, random);
  for (const int64_t depth : {1, 2, 31, 32, 33, 63, 64, 65})
    ExpectIntegers({20, depth, 50}, true, random);
  for (const int64_t depth : {pairs::kDepth - 1, pairs::kDepth})
    ExpectIntegers({32, depth, 64}, false, random);
}

// Tiles leave subnormal values, which they would lose, to pairs: in later rows too.
TEST_F(MatmulTilesTest, SubnormalElementsAndSumsAreKept) {
  const PackedSize size = {32, 3, 64};
  std::vector<float> a(32 * 3);
  std::vector<float> b(3 * 64);
  a[31 * 3] = 0x1p-133f;
  b[63] = 0x1p100f;
  Packed subnormal(size, a, b);
  subnormal.Multiply(size, false);
  EXPECT_EQ(subnormal.c[31 * kStride + 63], 0x1p-33f);
  a[31 * 3] = 0x1p-70f;
  b[63] = 0x1p-60f;
  Packed small(size, a, b);
  small.Multiply(size, false);
  EXPECT_EQ(small.c[31 * kStride + 63], 0x1p-130f);
}

// The sum in c comes from an earlier slice of k.
TEST_F(MatmulTilesTest, SubnormalSumsThatAreThereAlreadyAreKept) {
  const PackedSize size = {1, 1, 1};
  Packed packed(size, {0}, {1});
  packed.c[0] = 0x1p-130f;
  packed.Multiply(size, true);
  EXPECT_EQ(packed.c[0], 0x1p-130f);
}

}  // namespace
}  // namespace warpcall::matmul
