// Shares the last tiles of a tiled kernel among all blocks, or all clusters, that run at once,
// where these tiles would keep only some of them busy (stream-K: M. Osama et al., 2023). Plain C++,
// tested without a GPU.
//
// All steps of k of the shared tiles, tile after tile, make one row, which is cut into runs:
//
//   tiles  |      0      |      1      |      2      |
//   runs   |   0   |   1   |   2   |   3   |   4   |
//
// A run is no longer than a tile, so that it lies in two tiles at most. The run with a tile's first
// steps, which ends in the tile or has all of it, writes the tile; the others leave it their sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "proto/common/check.h"

namespace warpcall::matmul {

struct Runs {
  uint32_t count;       // 0: no tile is shared
  uint32_t tile_steps;  // steps of k of a tile
  uint32_t steps;       // of a run
  uint32_t longer;      // runs, the first ones, with one step more

  // The first step of a run, in the row.
  constexpr uint32_t Begin(uint32_t run) const {
    WARPCALL_DEVICE_CHECK(run <= count, run, count);
    return run * steps + (run < longer ? run : longer);
  }

  // The run that has this step of the row.
  constexpr uint32_t RunOf(uint32_t step) const {
    const uint32_t in_longer = longer * (steps + 1);
    return step < in_longer ? step / (steps + 1) : longer + (step - in_longer) / steps;
  }

  // Returns the step of k that run `own` is to multiply of the tile that begins at `tile` in the
  // row, after the first `done` steps of the run, if all runs are to be at about the same k at any
  // moment, so that L2 has what several of them read. Before it are the steps that all runs have
  // done of the tile by then, and those that earlier runs do at the same time. `first` is
  // RunOf(tile). wgmma_tiled in bfloat16 on an H200: 8192^3 takes 1340 us so, 1356 with the steps
  // where the runs lie, and so at every k at once, and 1361 if no tile is shared.
  constexpr uint32_t StepOfK(uint32_t tile, uint32_t first, uint32_t own, uint32_t done) const {
    const uint32_t tile_end = tile + tile_steps;
    uint32_t step = 0;
    for (uint32_t run = first; run < count && Begin(run) < tile_end; ++run) {
      const uint32_t begin = Begin(run);
      const uint32_t end = Begin(run + 1);
      // The run's first step in the tile and the one after its last, counted from the run's begin.
      const uint32_t from = begin > tile ? 0 : tile - begin;
      const uint32_t to = (end < tile_end ? end : tile_end) - begin;
      step += done <= from ? 0 : (done < to ? done : to) - from;
      if (run < own && done >= from && done < to) ++step;
    }
    WARPCALL_DEVICE_CHECK(step < tile_steps, step, tile_steps);
    return step;
  }
};

// Returns how many of `tiles` are shared if `at_once` can be worked on at once: those beyond whole
// waves, if that spares each of the `at_once` more than `cost` of a tile's steps. None if the row
// of Runs would be longer than its 32 bits count.
constexpr int64_t SharedTiles(int64_t tiles, int64_t at_once, int64_t tile_steps, int64_t cost) {
  constexpr int64_t kRowMax = 0x7FFFFFFF;
  const int64_t rest = tiles % at_once;
  if (tiles <= at_once || rest == 0 || tile_steps > kRowMax / rest) return 0;
  return tile_steps * (at_once - rest) / at_once > cost ? rest : 0;
}

// Runs of an eighth of a tile at least: who writes a tile adds up what the others have. REQUIRES:
// `tile_steps` and `at_once` are above 0, and tiles x tile_steps fits into 32 bits.
constexpr Runs MakeRuns(uint32_t tiles, uint32_t tile_steps, uint32_t at_once) {
  constexpr uint32_t kRunsOfTile = 8;
  if (tiles == 0) return {};
  WARPCALL_DCHECK(tile_steps > 0 && at_once > 0 && tiles <= 0xFFFFFFFFu / tile_steps, tiles,
                  tile_steps, at_once);
  const uint32_t most = tiles * (tile_steps < kRunsOfTile ? tile_steps : kRunsOfTile);
  const uint32_t count = at_once < most ? at_once : most;
  return {.count = count,
          .tile_steps = tile_steps,
          .steps = tiles * tile_steps / count,
          .longer = tiles * tile_steps % count};
}

// Bytes of LeftSums for so many blocks of `threads` that have the sums of `outputs`: of the number
// and the flags, and of all.
inline constexpr size_t kLeftNumberBytes = 16;
constexpr size_t LeftFlagBytes(uint32_t blocks, int threads) {
  if (blocks == 0) return 0;
  return kLeftNumberBytes + size_t{blocks} * static_cast<size_t>(threads / 32) * sizeof(uint32_t);
}
constexpr size_t LeftBytes(uint32_t blocks, int threads, int outputs) {
  return LeftFlagBytes(blocks, threads) +
         size_t{blocks} * static_cast<size_t>(outputs) * sizeof(float);
}

}  // namespace warpcall::matmul
