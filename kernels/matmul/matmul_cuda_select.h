// Chooses the tile for a problem on a GPU, and the number of pieces that its sums are cut into.
// Plain arithmetic, so that it can be tested without a GPU and evaluated by the kernels at compile
// time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/common/saturate.h"
#include "kernels/cuda/device_check.cuh"
#include "kernels/matmul/matmul_cuda_runs.h"
#include "proto/common/check.h"

namespace warpcall::matmul {

// The index along which neighbours of an operand lie side by side: k, or the one that the operand
// shares with c (m of a, n of b), which is called its outer index.
enum class Adjacent : uint8_t { kDepth, kOuter };

// The work of one block of a tiled kernel. The tables below list the members in order.
struct Tile {
  int m;  // rows and columns of c
  int n;
  int depth;  // terms of k in shared memory per stage
  int warps_m;
  int warps_n;
  int stages;    // in the ring in shared memory
  int resident;  // blocks that a multiprocessor holds at once, which bounds the registers
  int rate;      // percent of the peak rate that the inner loop is expected to reach

  constexpr int warps() const { return warps_m * warps_n; }
  constexpr int threads() const { return warps() * 32; }
  constexpr bool may_share() const { return resident == 1; }
  constexpr int warp_m() const { return m / warps_m; }
  constexpr int warp_n() const { return n / warps_n; }
};

// mma_tiled. Per 16 terms of k a warp reads (warp_m + warp_n) x 32 bytes of shared memory for
// warp_m x warp_n / 128 mma; at 128 bytes a cycle and 62 % of the peak rate, which is what mma.sync
// reaches on Hopper (W. Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
// Architecture", 2024), warps of 64 x 64 keep shared memory busy for 62 % of the time, warps of
// 32 x 64 for 94 % and warps of 32 x 32 for longer than the tensor cores: hence the rates. The
// stages fill 192 KiB (one block), 2 x 96, 2 x 96 and 4 x 48; all but the first fit into the
// 99 KiB of architectures 86, 89 and 120.
inline constexpr Tile kMmaTiles[] = {
    {128, 256, 64, 2, 4, 4, 1, 60},
    {128, 128, 64, 2, 2, 3, 2, 57},
    {64, 128, 64, 2, 2, 4, 2, 48},
    {64, 64, 64, 2, 2, 3, 4, 36},
};

// mma_tiled where rows do not start at multiples of 16 bytes and elements are loaded one by one,
// which takes more time than the multiplication.
inline constexpr Tile kMmaElementTiles[] = {
    {128, 128, 32, 2, 4, 2, 1, 22},
    {64, 64, 32, 2, 2, 2, 2, 16},
};

// register_tiled on float32. The lanes of a warp lie 8 x 4, so a thread owns 8 x 16, 8 x 8 or 4 x 8
// outputs; per term of k it reads 24, 16 or 12 floats, by 16 bytes, for 128, 64 or 32
// multiplications. At 512 bytes per load instruction of a warp and 128 bytes a cycle shared memory
// is busy for 75, 100 and 150 % of the time that the multiplications take, less what equal
// addresses save. The loop over a stage's depth is unrolled: 1024, 512 and 512 multiplications.
inline constexpr Tile kRegisterTiles[] = {
    {128, 256, 8, 2, 4, 4, 1, 90},
    {128, 128, 8, 2, 4, 4, 2, 80},
    {64, 64, 16, 2, 2, 3, 4, 60},
};

// register_tiled on 16-bit types, whose elements pass through registers on their way and are float
// in shared memory.
inline constexpr Tile kRegisterNarrowTiles[] = {
    {128, 128, 8, 2, 4, 2, 2, 75},
    {64, 64, 16, 2, 2, 2, 4, 55},
};

// `batches` multiplications of m x k by k x n; all positive.
struct Size {
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t batches;
};

// The largest number of runs that sums are cut into.
inline constexpr int kSplitsMax = 32;

struct Chip {
  int32_t multiprocessors;
  int32_t products_per_cycle;  // per multiprocessor, at the peak rate
  bool shares = false;         // the implementation's blocks may share tiles; see Runs
};

// Sums are cut into `splits` runs of `split_depth` terms (the last may be shorter, none is empty)
// that different blocks add up; the partial sums meet in the workspace.
struct Choice {
  int tile;  // index into the table
  int splits;
  int64_t split_depth;
};

constexpr int64_t TilesOf(const Tile& tile, const Size& size) {
  return SaturatingMultiply(CeilDivide(size.m, tile.m), CeilDivide(size.n, tile.n));
}

constexpr int64_t BlocksOf(const Tile& tile, const Size& size, int splits) {
  return SaturatingMultiply(SaturatingMultiply(TilesOf(tile, size), size.batches), splits);
}

// Bytes of the partial sums: float32, [split][batch][m][n].
constexpr size_t PartialBytes(const Size& size, const Choice& choice) {
  if (choice.splits == 1) return 0;
  return SaturatingBytes(SaturatingMultiply(SaturatingMultiply(size.m, size.n),
                                            SaturatingMultiply(size.batches, choice.splits)),
                         sizeof(float));
}

// Returns how many of the last tiles all blocks share; see Runs. In float32 on an H200 4096^3,
// whose last 116 tiles would keep as many of 132 multiprocessors busy, takes 2602 us, with whole
// tiles 2656; 5120^3 (8 tiles) 5087 and 5770; 4096x4096 with k = 1024 (116, which spares 15 steps)
// 688 and 695.
constexpr int64_t SharedTiles(const Tile& tile, const Size& size, const Choice& choice,
                              const Chip& chip) {
  constexpr int64_t kSharingSteps = 8;
  if (!chip.shares || !tile.may_share() || choice.splits > 1) return 0;
  return SharedTiles(BlocksOf(tile, size, 1), chip.multiprocessors, CeilDivide(size.k, tile.depth),
                     kSharingSteps);
}

// Cuts sums into `wanted` runs or fewer, each a multiple of the tile's depth.
constexpr Choice Cut(const Tile& tile, const Size& size, int wanted) {
  WARPCALL_DCHECK(wanted > 0 && size.k > 0, wanted, size.k);
  const int64_t steps = CeilDivide(size.k, tile.depth);
  const int64_t each = CeilDivide(steps, wanted);
  return {.tile = 0,
          .splits = static_cast<int>(CeilDivide(steps, each)),
          .split_depth = each * tile.depth};
}

// Cycles that the multiplication is expected to take: the busiest multiprocessor's blocks one after
// the other at the tile's rate, each round of resident blocks with its filling and draining, and
// the second kernel that adds up partial sums.
constexpr double EstimatedCycles(const Tile& tile, const Size& size, const Choice& choice,
                                 const Chip& chip) {
  // Derived for 1.7 GHz: 1 us until the first stage has arrived and the last output has left; 2 us
  // for another launch; 4300 GB/s for partial sums written and read.
  constexpr double kRoundCycles = 1700;
  constexpr double kLaunchCycles = 3400;
  constexpr double kBytesPerCycle = 2500;
  const int64_t blocks = BlocksOf(tile, size, choice.splits);
  const bool shares = SharedTiles(tile, size, choice, chip) > 0;
  const double deepest = shares ? static_cast<double>(blocks) / chip.multiprocessors
                                : static_cast<double>(CeilDivide(blocks, chip.multiprocessors));
  const int64_t rounds =
      CeilDivide(CeilDivide(blocks, chip.multiprocessors), tile.resident) + (shares ? 1 : 0);
  const double products = 1.0 * tile.m * tile.n *
                          static_cast<double>(CeilDivide(choice.split_depth, tile.depth)) *
                          tile.depth;
  double cycles = deepest * products / (chip.products_per_cycle * (tile.rate / 100.0)) +
                  static_cast<double>(rounds) * kRoundCycles;
  if (choice.splits > 1)
    cycles +=
        kLaunchCycles + 2.0 * static_cast<double>(PartialBytes(size, choice)) / kBytesPerCycle;
  return cycles;
}

// The tile and the splits of the least estimated time, the first in the table's order if several
// are equal; `tile` is -1 if the device can hold none. Splitting is considered only while all
// blocks run at once. `fits` says which tiles the device can hold.
template <typename Fits>
constexpr Choice ChooseTile(std::span<const Tile> tiles, const Size& size, const Chip& chip,
                            const Fits& fits) {
  Choice best{.tile = -1, .splits = 1, .split_depth = size.k};
  double best_cycles = 0;
  for (int i = 0; i < static_cast<int>(tiles.size()); ++i) {
    const Tile& tile = tiles[i];
    if (!fits(tile)) continue;
    const int64_t at_once = int64_t{1} * chip.multiprocessors * tile.resident;
    for (int splits = 1; splits <= kSplitsMax; ++splits) {
      if (splits > 1 && BlocksOf(tile, size, splits) > at_once) break;
      Choice choice = Cut(tile, size, splits);
      choice.tile = i;
      const double cycles = EstimatedCycles(tile, size, choice, chip);
      if (best.tile >= 0 && cycles >= best_cycles) continue;
      best = choice;
      best_cycles = cycles;
    }
  }
  return best;
}

// The first cut of the least estimated time into two runs or more, for a given tile: also where not
// all blocks run at once. One run where k makes a single step of the tile.
constexpr Choice CutTile(const Tile& tile, const Size& size, const Chip& chip) {
  Choice best = Cut(tile, size, 1);
  double best_cycles = 0;
  for (int splits = 2; splits <= kSplitsMax; ++splits) {
    const Choice choice = Cut(tile, size, splits);
    if (choice.splits == 1) break;
    const double cycles = EstimatedCycles(tile, size, choice, chip);
    if (best.splits > 1 && cycles >= best_cycles) continue;
    best = choice;
    best_cycles = cycles;
  }
  return best;
}

// Returns the number of runs that the sums of a matrix times a vector are cut into, so that
// `blocks` times as many blocks fill the device. Reading is what counts: 2 blocks of 256 threads
// per multiprocessor have enough loads in flight, and runs of 1024 terms still outlast a block's
// beginning and end.
constexpr int DotSplits(int64_t blocks, int64_t k, int32_t multiprocessors) {
  WARPCALL_DCHECK(blocks > 0 && k > 0 && multiprocessors > 0, blocks, k, multiprocessors);
  constexpr int64_t kBlocksPerMultiprocessor = 2;
  constexpr int64_t kTermsMin = 1024;
  const int64_t wanted = CeilDivide(kBlocksPerMultiprocessor * multiprocessors, blocks);
  return static_cast<int>(std::max<int64_t>(1, std::min(wanted, k / kTermsMin)));
}

struct TilePlace {
  uint32_t m;  // in tiles
  uint32_t n;
};

// Blocks run about in the order of their index. Walking down columns of 8 rows of tiles keeps what
// the blocks at work share small: with tiles of 128 x 256, 132 blocks read 8 rows and 17 columns of
// tiles instead of 2 and 66 or so (grouped ordering, as in Triton's matrix multiplication
// tutorial).
constexpr TilePlace PlaceOf(uint32_t index, uint32_t tiles_m, uint32_t tiles_n,
                            uint32_t rows_max = 8) {
  WARPCALL_DEVICE_CHECK(rows_max > 0 && index < tiles_m * tiles_n, index, tiles_m, tiles_n);
  const uint32_t group_rows = tiles_m < rows_max ? tiles_m : rows_max;
  const uint32_t group_tiles = group_rows * tiles_n;
  const uint32_t first = index / group_tiles * group_rows;
  const uint32_t rows = tiles_m - first < group_rows ? tiles_m - first : group_rows;
  const uint32_t within = index % group_tiles;
  return {.m = first + within % rows, .n = within / rows};
}

}  // namespace warpcall::matmul
