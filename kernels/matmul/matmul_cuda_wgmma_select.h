// Chooses wgmma_tiled's tile for a problem. Plain arithmetic, tested without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "kernels/matmul/matmul_cuda_runs.h"
#include "kernels/matmul/matmul_cuda_select.h"
#include "kernels/matmul/matmul_cuda_wgmma_tiles.h"

namespace warpcall::matmul {

struct WgmmaSize {
  Size size;
  // True if the operand's rows begin at multiples of 128 bytes, the lines that L2 is read by.
  bool a_in_lines;
  bool b_in_lines;
};

constexpr int64_t WgmmaSteps(int64_t k) { return CeilDivide(k, kWgmmaDepth); }

// Tiles of clusters in all batches: where blocks are neighbours along m, the last may have nothing
// to do.
constexpr int64_t WgmmaWork(const WgmmaTile& tile, const Size& size) {
  const int64_t rows = CeilDivide(CeilDivide(size.m, tile.m), tile.across());
  return SaturatingMultiply(SaturatingMultiply(rows, CeilDivide(size.n, tile.n)), size.batches);
}

// Returns the size that counts the tiles and steps of an a that is read in classes of rows: m in
// whole clusters of each class, k with the columns before a row. REQUIRES: k % kWgmmaClasses > 0.
constexpr Size WgmmaSizeInClasses(const WgmmaTile& tile, Size size) {
  WARPCALL_DCHECK(size.k % kWgmmaClasses > 0, size.k);
  const int64_t rows = int64_t{tile.m} * tile.across();
  const int64_t of_class = CeilDivide(CeilDivide(size.m, kWgmmaClasses), rows) * rows;
  size.m = SaturatingMultiply(of_class, kWgmmaClasses);
  size.k += kWgmmaClasses - std::gcd(size.k, kWgmmaClasses);
  return size;
}

// Returns true if reading a in classes of rows is expected to cost less than a copy of a. Its rows
// straddle lines, which costs 3 to 6 %, and the classes' last tiles may add 3 %. In bfloat16 on an
// H200, copies of b included: 2047^3 37.3 us, with a copy of a 39.6; 4095^3 213 and 221; 8191^3
// 1533 and 1553.
constexpr bool WgmmaReadsInClasses(const WgmmaTile& tile, const Size& size) {
  constexpr int64_t kRowsMin = 1024;
  const int64_t work = WgmmaWork(tile, WgmmaSizeInClasses(tile, size));
  return size.m >= kRowsMin && work - WgmmaWork(tile, size) <= WgmmaWork(tile, size) * 3 / 100;
}

// Clusters that run at once. Multiprocessors come in groups that a cluster stays within: of 132 an
// H200 gives 132 to clusters of two, 120 to those of four and eight.
constexpr int64_t WgmmaClustersAtOnce(const WgmmaTile& tile, int32_t multiprocessors) {
  const int64_t usable = tile.blocks <= 2 ? multiprocessors : int64_t{multiprocessors} * 10 / 11;
  return std::max<int64_t>(1, usable / tile.blocks);
}

// Likewise where sums of k terms are cut. Of blocks that take less than half of a multiprocessor's
// memory a few more run beside others; it costs them little where their sums are no longer than the
// ring. Eight times 128x1024x1024 in a graph took 33.7 us by 32 clusters of four such blocks, and
// 41.4 by 16 of blocks twice as wide.
constexpr int64_t WgmmaClustersAtOnce(const WgmmaTile& tile, int64_t k, int32_t multiprocessors) {
  const bool run_beside_others = tile.splits() > 1 &&
                                 2 * WgmmaSharedBytes(tile) <= kWgmmaSharedBytesMax &&
                                 CeilDivide(WgmmaSteps(k), tile.splits()) <= tile.stages;
  return run_beside_others ? std::max(1, multiprocessors / tile.blocks)
                           : WgmmaClustersAtOnce(tile, multiprocessors);
}

// Returns how many of the last tiles all clusters share; see Runs. On an H200 5120x5120 with k =
// 8192, whose last 4 tiles would keep 4 of 66 clusters busy, takes 548 us, with whole tiles 595;
// 8192^3 (34 tiles) 1342 and 1364; 6144^3 (48, which spares 26 steps) 582 and 587; 4096^3 (58, 7
// steps) 182 and 177.
inline constexpr int64_t kWgmmaSharingSteps = 24;
constexpr int64_t WgmmaSharedTiles(const WgmmaTile& tile, const Size& size,
                                   int32_t multiprocessors) {
  if (!tile.may_share()) return 0;
  return SharedTiles(WgmmaWork(tile, size), WgmmaClustersAtOnce(tile, multiprocessors),
                     WgmmaSteps(size.k), kWgmmaSharingSteps);
}

// Rows of clusters that are walked down together; see PlaceOf.
constexpr uint32_t WgmmaGroupRows(const WgmmaTile& tile) {
  return 16 / static_cast<uint32_t>(tile.across());
}

// Cycles of one step of k of a tile: the longest of its products, its passes through shared memory
// and its share of L2. Fitted, as the constants below, to 28 sizes from 256^3 to 8192^3 on an H200:
// over them the tile of the least estimate is 0.2 % slower than the fastest on average, and 3 % at
// most.
constexpr double WgmmaStepCycles(const WgmmaTile& tile, const WgmmaSize& of, double busy) {
  constexpr double kProductsPerCycle = 2048 / 1.05;
  constexpr double kBytesPerCycle = 44;  // from L2, when every multiprocessor reads
  constexpr double kOutOfLines = 1.6;    // cost factor of rows that straddle lines
  constexpr double kRowBytes = 2 * kWgmmaDepth;
  const double products = 1.0 * tile.m * tile.n * kWgmmaDepth / kProductsPerCycle;
  const double shared = tile.consumers() * (64.0 + tile.n) + tile.m + tile.n;
  const double rows = tile.m * (of.a_in_lines ? 1 : kOutOfLines) +
                      1.0 * tile.n / tile.across() * (of.b_in_lines ? 1 : kOutOfLines);
  const double copies = rows * kRowBytes / kBytesPerCycle * (0.6 + 0.4 * busy);
  return std::max({products, shared, copies});
}

// Cycles that the multiplication is expected to take from its first copy on.
constexpr double WgmmaCycles(const WgmmaTile& tile, const WgmmaSize& of, int32_t multiprocessors) {
  constexpr double kPairCycles = 3150;    // to launch clusters, and to end them together
  constexpr double kGatherCycles = 1100;  // for the slowest block's sums, and for theirs to arrive
  constexpr double kGatherBytesPerCycle = 64;
  constexpr double kOutputsPerCycle = 16;  // per multiprocessor
  constexpr double kBytesPerCycle = 2286;  // memory traffic: 4000 GB/s at 1.75 GHz
  constexpr double kBytesPerBlock = 26;    // memory traffic of one block alone
  const Size& size = of.size;
  const int64_t work = WgmmaWork(tile, size);
  const int64_t at_once = WgmmaClustersAtOnce(tile, size.k, multiprocessors);
  const bool shares = WgmmaSharedTiles(tile, size, multiprocessors) > 0;
  const double waves = shares ? static_cast<double>(work) / static_cast<double>(at_once)
                              : static_cast<double>(CeilDivide(work, at_once));
  const double busy = std::min(1.0, static_cast<double>(work) / static_cast<double>(at_once));
  const double outputs = 1.0 * tile.m * tile.n;
  const auto steps = static_cast<double>(CeilDivide(WgmmaSteps(size.k), tile.splits()));
  const double step = WgmmaStepCycles(tile, of, busy);
  double cycles = waves * (steps * step + outputs / kOutputsPerCycle);
  if (shares) cycles += kWgmmaSharingSteps * step;
  if (tile.splits() > 1) cycles += kGatherCycles + WgmmaOutBytes(tile) / kGatherBytesPerCycle;
  const double elements = static_cast<double>(size.m) * static_cast<double>(size.k) +
                          static_cast<double>(size.k) * static_cast<double>(size.n) +
                          static_cast<double>(size.m) * static_cast<double>(size.n);
  const double blocks = static_cast<double>(std::min(work, at_once)) * tile.blocks;
  const double memory = elements * static_cast<double>(size.batches) * 2 /
                        std::min(kBytesPerCycle, blocks * kBytesPerBlock);
  return std::max(cycles, memory) + (tile.across() > 1 ? kPairCycles : 0);
}

// Returns true if a cluster that shares a tile has a step of k for each of its blocks.
constexpr bool WgmmaCanSplit(const WgmmaTile& tile, int64_t k) {
  return WgmmaSteps(k) >= tile.splits();
}

// The first tile of the least estimated time. Sums are cut only where all clusters run at once: the
// first block's ring is then not needed for another tile.
constexpr int ChooseWgmmaTile(const WgmmaSize& of, int32_t multiprocessors) {
  int best = 0;
  double best_cycles = 0;
  for (int i = 0; i < kWgmmaTileCount; ++i) {
    const WgmmaTile& tile = kWgmmaTiles[i];
    if (tile.splits() > 1 &&
        (!WgmmaCanSplit(tile, of.size.k) ||
         WgmmaWork(tile, of.size) > WgmmaClustersAtOnce(tile, of.size.k, multiprocessors)))
      continue;
    const double cycles = WgmmaCycles(tile, of, multiprocessors);
    if (i > 0 && cycles >= best_cycles) continue;
    best = i;
    best_cycles = cycles;
  }
  return best;
}

// "128x256x64 a[m,k] b[k,n] pairs whole", "64x64x64 a[m,k] b[n,k] cut in 4"; in tf32, where a of
// the tile is the product's b, "64x128x32 b[k,n] a[m,k] whole".
inline std::string NameOf(const WgmmaVariants& variants, int number) {
  const WgmmaChoice variant = variants.At(number);
  const WgmmaTile& tile = kWgmmaTiles[variant.tile];
  const std::string cluster = tile.splits() > 1   ? absl::StrCat(" cut in ", tile.splits())
                              : tile.across() > 1 ? " pairs whole"
                                                  : " whole";
  const bool tf32 = variants.layouts == WgmmaLayouts::kBAlongK;
  const std::string size =
      absl::StrCat(tile.m, "x", tile.n, "x", tf32 ? kWgmmaDepth / 2 : kWgmmaDepth);
  if (tf32 && variant.a == Adjacent::kOuter) return absl::StrCat(size, " b[k,n] a[m,k]", cluster);
  return absl::StrCat(size, variant.a == Adjacent::kDepth ? " a[m,k]" : " a[k,m]",
                      variant.b == Adjacent::kDepth ? " b[n,k]" : " b[k,n]", cluster);
}

}  // namespace warpcall::matmul
