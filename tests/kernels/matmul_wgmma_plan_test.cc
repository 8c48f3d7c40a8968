// Plans of wgmma_tiled for problems and devices, without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_wgmma_plan.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::matmul {
namespace {

using ::testing::HasSubstr;
using testing::MadeUpH200;

Problem ProductOf(Dims a, Dims b, bool transpose_a = false, bool transpose_b = false) {
  constexpr DataType kType = DataType::kBFloat16;
  return *MakeProblem(MatmulOp(), {{kType, std::move(a)}, {kType, std::move(b)}},
                      {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

WgmmaTiling TilingOf(const Problem& problem, int variant = kRowsChoice) {
  return *MakeWgmmaTiling({.product = problem,
                           .arrangement = ArrangementOf(problem),
                           .variants = {},
                           .variant = variant},
                          MadeUpH200());
}

TEST(WgmmaPlanTest, OtherArchitecturesAreRefusedByName) {
  for (const int32_t architecture : {80, 89, 100, 120}) {
    DeviceProperties device = MadeUpH200();
    device.architecture = architecture;
    device.compute_capability = absl::StrCat(architecture / 10, ".", architecture % 10);
    const absl::Status status = WgmmaTiledRow().supports(ProductOf({8, 8}, {8, 8}), device);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr(device.compute_capability));
  }
}

TEST(WgmmaPlanTest, OnlyRowsThatAreNoWholeVectorsAreCopied) {
  const WgmmaTiling aligned = TilingOf(ProductOf({40, 72}, {72, 48}));
  EXPECT_EQ(aligned.workspace_bytes(), 0u);
  EXPECT_EQ(aligned.gpu_kernels(), 1);
  EXPECT_TRUE(aligned.geometry.c_in_boxes);
  // k: both have rows of 73 or, the other way, of 40 and 48.
  EXPECT_EQ(TilingOf(ProductOf({40, 73}, {73, 48})).workspace_bytes(), 40u * 80 * 2);
  EXPECT_EQ(TilingOf(ProductOf({73, 40}, {73, 48}, true)).workspace_bytes(), 0u);
  const WgmmaTiling odd = TilingOf(ProductOf({3, 40, 73}, {3, 73, 49}));
  EXPECT_EQ(odd.workspace_bytes(), 3u * (40 * 80 + 73 * 56) * 2);
  EXPECT_EQ(odd.gpu_kernels(), 2) << "one pads both";
  EXPECT_FALSE(odd.geometry.c_in_boxes);
}

// 4095 rows make 8 classes of 512 or 511, which are two pairs of 128-row tiles each, and 64.98
// steps of k where 7 columns lie before a row.
TEST(WgmmaPlanTest, OddRowsOfAAreReadInClasses) {
  const WgmmaTiling odd = TilingOf(ProductOf({4095, 4095}, {4095, 4095}));
  ASSERT_EQ(odd.tile.across(), 2);
  EXPECT_EQ(odd.a.copy, WgmmaCopy::kNone);
  EXPECT_EQ(odd.geometry.a_past, 7u);
  EXPECT_EQ(odd.geometry.tiles_m, 32u);
  EXPECT_EQ(odd.geometry.work, 16u * 16);
  EXPECT_EQ(odd.geometry.steps, 65u);
  EXPECT_FALSE(odd.geometry.c_in_boxes);
  EXPECT_EQ(odd.workspace_bytes(), 4095u * 4096 * 2) << "b is padded still";
  const WgmmaTiling of_fours = TilingOf(ProductOf({4096, 4092}, {4092, 4096}));
  EXPECT_EQ(of_fours.geometry.a_past, 4u);
  EXPECT_EQ(of_fours.geometry.steps, 64u);
  EXPECT_FALSE(of_fours.geometry.c_in_boxes);
  EXPECT_EQ(of_fours.gpu_kernels(), 1);
  // Tiles are shared by the steps that there are.
  const WgmmaTiling shared = TilingOf(ProductOf({8191, 8191}, {8191, 8191}));
  EXPECT_EQ(shared.geometry.work - shared.geometry.whole, 34u);
  EXPECT_EQ(shared.geometry.runs.tile_steps, 129u);
}

TEST(WgmmaPlanTest, OddRowsOfAAreCopiedWhereClassesCostMoreOrCannotBeRead) {
  const auto is_copied = [](const Problem& problem, int variant = kRowsChoice) {
    const WgmmaTiling tiling = TilingOf(problem, variant);
    EXPECT_EQ(tiling.a.copy == WgmmaCopy::kPadded, tiling.geometry.a_past == 0);
    return tiling.a.copy == WgmmaCopy::kPadded;
  };
  EXPECT_FALSE(is_copied(ProductOf({2048, 2047}, {2047, 2048})));
  EXPECT_TRUE(is_copied(ProductOf({1023, 2047}, {2047, 2048}))) << "few rows";
  EXPECT_TRUE(is_copied(ProductOf({2100, 2047}, {2047, 2048}))) << "24 tiles instead of 17";
  EXPECT_TRUE(is_copied(ProductOf({2048, 2047}, {2048, 2047}, false, true))) << "b[n,k]";
  EXPECT_TRUE(is_copied(ProductOf({2047, 2047}, {2047, 2048}, true))) << "a[k,m]";
  EXPECT_TRUE(is_copied(ProductOf({2, 2048, 2047}, {2, 2047, 2048}))) << "two matrices";
  const int cut = WgmmaVariants{}.NumberOf({9, Adjacent::kDepth, Adjacent::kOuter});
  EXPECT_TRUE(is_copied(ProductOf({2048, 2047}, {2047, 256}), cut));
}

// The map of a class has each row of it, and no byte that is not a's.
TEST(WgmmaPlanTest, MapsOfClassesHaveTheirRowsOfA) {
  for (const int64_t k : {2041, 2042, 2044, 2047}) {
    constexpr int64_t kRows = 2045;
    const WgmmaTiling tiling = TilingOf(ProductOf({kRows, k}, {k, 2048}));
    ASSERT_GT(tiling.geometry.a_past, 0u) << k;
    int64_t rows = 0;
    for (int i = 0; i < kWgmmaClasses; ++i) {
      const WgmmaClass of = WgmmaClassOf(tiling, i);
      const int64_t past = i * tiling.geometry.a_past % kWgmmaClasses;
      EXPECT_EQ(of.bytes_before % 16, 0);
      EXPECT_EQ(of.stack.row_elements % 8, 0);
      EXPECT_EQ(of.stack.columns, past + k);
      EXPECT_EQ(of.bytes_before / 2 + past, i * k);
      EXPECT_EQ(of.stack.row_elements, 8 * k);
      EXPECT_GE(of.bytes_before, 0);
      EXPECT_LE(of.bytes_before / 2 + (of.stack.rows - 1) * of.stack.row_elements + past + k,
                kRows * k);
      rows += of.stack.rows;
    }
    EXPECT_EQ(rows, kRows);
  }
}

Problem FloatProductOf(Dims a, Dims b, bool transpose_a, bool transpose_b) {
  constexpr DataType kType = DataType::kFloat32;
  return *MakeProblem(MatmulOp(), {{kType, std::move(a)}, {kType, std::move(b)}},
                      {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

Tiling FloatTilingOf(const Problem& problem, int variant = kRowsChoice) {
  return *RegisterTilingOf(problem, MadeUpH200(), variant);
}

TEST(TiledPlanTest, OperandsAlongKAreTurnedIfEachElementMeetsManyOfTheOther) {
  constexpr int64_t kMany = 1024, kFew = 1023;
  const Problem along_k = FloatProductOf({kMany, 20}, {1030, 20}, false, true);
  const Tiling both = FloatTilingOf(along_k);
  // Rows of whole lines of 32 floats.
  EXPECT_EQ(both.workspace_bytes(), 20u * (1024 + 1056) * 4);
  EXPECT_EQ(both.gpu_kernels(), 3);
  EXPECT_EQ(both.arrangement.arguments.a_stride, 1024);
  EXPECT_EQ(both.arrangement.arguments.b_stride, 1056);
  const TiledVariant variant = kRegisterVariants.At(both.variant);
  EXPECT_TRUE(variant.in_vectors);
  EXPECT_EQ(variant.a, Adjacent::kOuter);
  EXPECT_EQ(variant.b, Adjacent::kOuter);
  const auto copied = [](Dims a, Dims b, bool transpose_a, bool transpose_b) {
    return FloatTilingOf(FloatProductOf(std::move(a), std::move(b), transpose_a, transpose_b))
        .workspace_bytes();
  };
  EXPECT_EQ(copied({kMany, 20}, {20, kMany}, false, false), 20u * 1024 * 4);
  EXPECT_EQ(copied({20, kMany}, {20, kMany}, true, false), 0u);
  EXPECT_EQ(copied({kFew, 20}, {kMany, 20}, false, true), 0u);
  EXPECT_EQ(copied({kMany, 20}, {kFew, 20}, false, true), 0u);
  EXPECT_EQ(copied({2, kMany, 20}, {2, 20, kMany}, false, false), 0u) << "several matrices";
  // Each plan names the variant that it runs.
  EXPECT_EQ(FloatTilingOf(along_k, both.variant).workspace_bytes(), both.workspace_bytes());
  EXPECT_GT(
      FloatTilingOf(FloatProductOf({8, 20}, {8, 20}, false, true), both.variant).workspace_bytes(),
      0u);
}

WgmmaTiling Tf32TilingOf(Dims a, Dims b, bool transpose_a, bool transpose_b) {
  const Problem problem = *MakeProblem(
      MatmulOp(), {{DataType::kFloat32, std::move(a)}, {DataType::kFloat32, std::move(b)}},
      {{"transpose_a", transpose_a},
       {"transpose_b", transpose_b},
       {"precision", std::string("tf32")}});
  return *MakeWgmmaTiling({.product = problem,
                           .arrangement = ArrangementOf(problem),
                           .variants = {WgmmaLayouts::kBAlongK}},
                          MadeUpH200());
}

// The tensor cores take float32 rows along k, and the kernel turns one operand itself.
TEST(WgmmaPlanTest, OperandsOfTf32AreTurnedAlongKWhereTheKernelDoesNot) {
  const WgmmaTiling along_k = Tf32TilingOf({40, 72}, {48, 72}, false, true);
  EXPECT_FALSE(along_k.swapped);
  EXPECT_EQ(along_k.workspace_bytes(), 0u);
  EXPECT_EQ(along_k.geometry.steps, 3u);
  EXPECT_EQ(along_k.a.adjacent, Adjacent::kDepth);

  const WgmmaTiling by_kernel = Tf32TilingOf({40, 72}, {72, 48}, false, false);
  EXPECT_TRUE(by_kernel.swapped);
  EXPECT_EQ(by_kernel.workspace_bytes(), 0u);
  EXPECT_EQ(by_kernel.a.adjacent, Adjacent::kOuter);
  EXPECT_EQ(by_kernel.a.stack.columns, 48);
  EXPECT_EQ(by_kernel.a.box_rows, 32);
  EXPECT_EQ(by_kernel.b.stack.rows, 40);
  EXPECT_EQ(by_kernel.geometry.m, 48);
  EXPECT_EQ(by_kernel.c.columns, 48);

  for (const bool transpose_b : {false, true}) {
    const WgmmaTiling turned =
        Tf32TilingOf({72, 40}, transpose_b ? Dims{48, 72} : Dims{72, 48}, true, transpose_b);
    EXPECT_EQ(turned.swapped, !transpose_b);
    const WgmmaOperand& of_a = transpose_b ? turned.a : turned.b;
    EXPECT_EQ(of_a.copy, WgmmaCopy::kTurned);
    EXPECT_EQ(turned.workspace_bytes(), 40u * 72 * 4);
    EXPECT_EQ(turned.gpu_kernels(), 2);
    EXPECT_EQ(of_a.stack.columns, 72);
    EXPECT_EQ(of_a.stack.rows, 40);
  }
}

TEST(WgmmaPlanTest, SwappedOperandsHaveTheirBatchesSwapped) {
  const WgmmaTiling tiling = Tf32TilingOf({2, 1, 16, 24}, {1, 3, 24, 8}, false, false);
  ASSERT_TRUE(tiling.swapped);
  ASSERT_EQ(tiling.geometry.batch.rank, 2);
  EXPECT_EQ(tiling.geometry.batch.a_stride[0], 0);
  EXPECT_EQ(tiling.geometry.batch.b_stride[0], 1);
  EXPECT_EQ(tiling.geometry.batch.a_stride[1], 1);
  EXPECT_EQ(tiling.geometry.batch.b_stride[1], 0);
}

// Copying rows outside of a tensor takes time, too.
TEST(WgmmaPlanTest, NoMoreRowsAreCopiedThanThereAre) {
  const auto of_few = [](int64_t m, int64_t n, bool transpose_b) {
    return TilingOf(
        ProductOf({m, 4096}, transpose_b ? Dims{n, 4096} : Dims{4096, n}, false, transpose_b));
  };
  for (const bool transpose_b : {false, true}) {
    const WgmmaTiling few = of_few(16, 4096, transpose_b);
    ASSERT_EQ(few.tile.across(), 1);
    EXPECT_EQ(few.a.box_rows, 16);
    EXPECT_EQ(few.geometry.stage_bytes, (16u + few.tile.n) * 128);
    const WgmmaTiling many = of_few(4096, 4096, transpose_b);
    EXPECT_EQ(many.a.box_rows, many.tile.m);
    EXPECT_EQ(many.geometry.stage_bytes, static_cast<uint32_t>(many.tile.m + many.tile.n) * 128);
  }
  const WgmmaTiling narrow = of_few(4096, 24, true);
  EXPECT_EQ(narrow.b.box_rows, 24);
  EXPECT_EQ(narrow.geometry.stage_bytes, (narrow.tile.m + 24u) * 128);
}

TEST(WgmmaPlanTest, FloatsAreTakenWherePrecisionPermitsAlone) {
  const TensorSpec square = {DataType::kFloat32, {64, 64}};
  const auto supports = [&](const char* precision) {
    return WgmmaTf32Row().supports(
        *MakeProblem(MatmulOp(), {square, square}, {{"precision", std::string(precision)}}),
        MadeUpH200());
  };
  EXPECT_TRUE(supports("tf32").ok());
  EXPECT_THAT(std::string(supports("ieee").message()), HasSubstr("precision=ieee"));
}

// An operand that batches share is one matrix, whose coordinate stays 0.
TEST(WgmmaPlanTest, BatchesCountMatrices) {
  const WgmmaTiling tiling = TilingOf(ProductOf({2, 1, 16, 24}, {1, 3, 24, 8}));
  EXPECT_EQ(tiling.a.stack.matrices, 2);
  EXPECT_EQ(tiling.b.stack.matrices, 3);
  EXPECT_EQ(tiling.c.matrices, 6);
  ASSERT_EQ(tiling.geometry.batch.rank, 2);
  EXPECT_EQ(tiling.geometry.batch.a_stride[0], 1);
  EXPECT_EQ(tiling.geometry.batch.a_stride[1], 0);
  EXPECT_EQ(tiling.geometry.batch.b_stride[0], 0);
  EXPECT_EQ(tiling.geometry.batch.b_stride[1], 1);
  // Rows of a that meet one b are one taller matrix.
  EXPECT_EQ(TilingOf(ProductOf({5, 16, 24}, {24, 8})).geometry.m, 80);
}

TEST(WgmmaPlanTest, TheGridIsOfWholeClustersAndNoLargerThanTheDeviceUnlessSumsAreCut) {
  const Problem problem = ProductOf({4096, 4096}, {4096, 4096});
  const Arrangement arrangement = ArrangementOf(problem);
  const WgmmaVariants variants;
  for (int tile = 0; tile < kWgmmaTileCount; ++tile) {
    const WgmmaTiling tiling =
        TilingOf(problem, variants.NumberOf({tile, arrangement.a, arrangement.b}));
    EXPECT_EQ(tiling.blocks % tiling.tile.blocks, 0u);
    EXPECT_EQ(tiling.blocks > 132, tiling.tile.splits() > 1) << tile;
    if (tiling.tile.splits() > 1) {
      EXPECT_EQ(tiling.blocks, tiling.geometry.work * tiling.tile.blocks);
    }
  }
}

// Each step of k of each tile is some run's, once; a run is no longer than a tile; and no moment
// has runs at steps that are far from each other.
TEST(RunsTest, RunsHaveEachStepOfEachTileOnce) {
  struct Shared {
    uint32_t tiles, tile_steps, clusters;
  };
  for (const Shared& of : {Shared{34, 128, 66},
                           {4, 128, 66},
                           {1, 7, 66},
                           {48, 96, 66},
                           {65, 40, 66},
                           {5, 3, 132},
                           {131, 33, 132},
                           {2, 41, 3}}) {
    SCOPED_TRACE(absl::StrCat(of.tiles, " tiles of ", of.tile_steps, " for ", of.clusters));
    const Runs runs = MakeRuns(of.tiles, of.tile_steps, of.clusters);
    ASSERT_LE(runs.count, of.clusters);
    EXPECT_LE(runs.steps + (runs.longer > 0), of.tile_steps);
    EXPECT_EQ(runs.Begin(runs.count), of.tiles * of.tile_steps);
    for (uint32_t tile = 0; tile < of.tiles * of.tile_steps; tile += of.tile_steps) {
      const uint32_t first = runs.RunOf(tile);
      std::vector<int> times(of.tile_steps);
      for (uint32_t step = tile; step < tile + of.tile_steps; ++step) {
        const uint32_t run = runs.RunOf(step);
        ASSERT_TRUE(runs.Begin(run) <= step && step < runs.Begin(run + 1)) << step;
        const uint32_t step_of_k = runs.StepOfK(tile, first, run, step - runs.Begin(run));
        ++times[step_of_k];
        // The kernel looks for a tile's first step where runs begin it alone.
        EXPECT_TRUE(step_of_k > 0 || step == std::max(tile, runs.Begin(run))) << step;
      }
      EXPECT_THAT(times, ::testing::Each(1));
    }
  }
}

// A description may have any size; nothing is multiplied by it.
TEST(RunsTest, TilesOfMoreStepsThanARowCountsAreNotShared) {
  constexpr int64_t kRowMax = 0x7FFFFFFF;
  EXPECT_EQ(SharedTiles(198, 132, kRowMax / 66, 8), 66);
  EXPECT_EQ(SharedTiles(198, 132, kRowMax / 66 + 1, 8), 0);
  EXPECT_EQ(SharedTiles(1, 132, 512, 8), 0);
  EXPECT_EQ(SharedTiles(264, 132, 512, 8), 0);
  const TensorSpec a = {DataType::kFloat32, {4096, int64_t{1} << 35}};
  const TensorSpec b = {DataType::kFloat32, {int64_t{1} << 35, 4096}};
  EXPECT_TRUE(RegisterTiledRow().supports(*MakeProblem(MatmulOp(), {a, b}, {}), MadeUpH200()).ok());
}

TEST(RunsTest, AtAnyMomentRunsAreAtAboutTheSameStep) {
  const Runs runs = MakeRuns(34, 128, 66);
  for (uint32_t done = 0; done < runs.steps; ++done) {
    uint32_t least = 128, most = 0;
    for (uint32_t run = 0; run < runs.count; ++run) {
      const uint32_t tile = (runs.Begin(run) + done) / 128 * 128;
      const uint32_t step = runs.StepOfK(tile, runs.RunOf(tile), run, done);
      least = std::min(least, step);
      most = std::max(most, step);
    }
    EXPECT_LE(most - least, 66u) << done;
  }
}

// 15 waves and 34 tiles of pairs: sharing saves each cluster 62 steps of 128; for 4096^3 8 of 64.
TEST(WgmmaPlanTest, TilesBeyondWholeWavesAreSharedWhereThatSavesSteps) {
  const WgmmaTiling tiling = TilingOf(ProductOf({8192, 8192}, {8192, 8192}));
  EXPECT_EQ(tiling.geometry.work, 1024u);
  EXPECT_EQ(tiling.geometry.whole, 990u);
  EXPECT_EQ(tiling.geometry.runs.count, 66u);
  EXPECT_EQ(tiling.flag_bytes(), 16u + 132 * 8 * 4);
  EXPECT_EQ(tiling.workspace_bytes(), tiling.flag_bytes() + size_t{132} * 128 * 256 * 4);
  for (const Dims& square : {Dims{4096, 4096}, Dims{2048, 2048}}) {
    const WgmmaTiling whole = TilingOf(ProductOf(square, square));
    EXPECT_EQ(whole.geometry.whole, whole.geometry.work);
    EXPECT_EQ(whole.geometry.runs.count, 0u);
    EXPECT_EQ(whole.workspace_bytes(), 0u);
  }
}

TEST(WgmmaPlanTest, SumsThatAreTooShortAreNotCutEvenIfAskedFor) {
  const Problem problem = ProductOf({64, 448}, {448, 64});
  const WgmmaVariants variants;
  const int in_8 = variants.NumberOf({kWgmmaTileCount - 1, Adjacent::kDepth, Adjacent::kOuter});
  const absl::Status status =
      WgmmaTiledRow().plan(problem, {.device = &MadeUpH200(), .variant = in_8}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("k is 448; sums of 449 terms"));
}

TEST(CheckMapTest, RefusesWhatCoordinatesAndStridesCannotHold) {
  cuda::MatrixStack stack = {DataType::kFloat16, 8, 8, 1, 8};
  EXPECT_TRUE(cuda::CheckMap(stack).ok());
  stack.rows = int64_t{1} << 31;
  EXPECT_THAT(std::string(cuda::CheckMap(stack).message()), HasSubstr("2147483648"));
  stack = {DataType::kFloat16, 1 << 20, 1 << 20, 1, 1 << 20};
  EXPECT_THAT(std::string(cuda::CheckMap(stack).message()), HasSubstr("2199023255552"));
}

}  // namespace
}  // namespace warpcall::matmul
