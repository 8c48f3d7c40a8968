// Chooses columns and cluster sizes for ring_per_columns: pure functions, no CUDA.
//
// A panel is the whole axis of some neighbouring columns. A cluster takes panels one after the
// other, each of its blocks a share of the rows, in chunks that fill a ring in its shared memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/common/saturate.h"
#include "kernels/cuda/vector_width.h"
#include "kernels/softmax/softmax_cuda_tile.h"
#include "proto/common/check.h"

namespace warpcall::softmax {

using cuda::kVectorBytes;

inline constexpr int kRingBlocksMax = 16;
inline constexpr int kRingChunkBytes = 16 << 10;
inline constexpr int kRingStages = 12;

// Bytes of shared memory of a block beside the ring: barriers, and statistics of columns.
inline constexpr int kRingFixedBytesMax = 26 << 10;
inline constexpr int kRingSharedBytes = kRingStages * kRingChunkBytes + kRingFixedBytesMax;

// Chunks of one panel for each block: as few as are worth an exchange, and no more than leave room
// for some of the next panel.
inline constexpr int kRingChunksWanted = 4;
inline constexpr int kRingChunksMax = kRingStages - 2;

// Columns of a panel by variant. Wide rows are what memory likes: on an H200 a copy by panels of
// 64, 128 and 256 bytes a row moves 2.6, 3.4 and 3.7 TB/s. Narrow ones hold a longer axis. Elements
// of 16 bits have no third variant: a chunk holds 256 rows of 64 bytes, the most that a tensor
// map's box can have.
inline constexpr int kRingColumns[] = {64, 32, 16};

constexpr int RingVariants(size_t element_bytes) { return element_bytes == sizeof(float) ? 3 : 2; }

constexpr int RingRowBytes(int variant, size_t element_bytes) {
  WARPCALL_DCHECK(variant >= 0 && variant < RingVariants(element_bytes), variant, element_bytes);
  return kRingColumns[variant] * static_cast<int>(element_bytes);
}

// Rows that a chunk has room for.
constexpr int RingChunkRows(int row_bytes) { return kRingChunkBytes / row_bytes; }

// The shortest axis. On an H200, clusters that hold a panel in registers take longer from here on:
// 16-bit elements 34 us where the ring takes 31 for 4096x4096, float32 46 and 44, and 73 and 62 for
// 6000x4096.
inline constexpr int64_t kRingAxisMin = 4096;

// The longest axis.
constexpr int64_t RingAxisMax(int variant, size_t element_bytes) {
  return int64_t{kRingBlocksMax} * kRingChunksMax *
         RingChunkRows(RingRowBytes(variant, element_bytes));
}

struct ColumnRingPlan {
  int variant;
  int blocks;  // per cluster; 0: none takes the axis
  int chunks;  // in a block's share of a panel
  int chunk_rows;
  int64_t across;  // panels side by side in one slab

  constexpr int64_t PanelsOf(const ColumnShape& shape) const {
    return SaturatingMultiply(across, shape.outer);
  }
};

// Plans clusters of a variant: at least two blocks, as compute-sanitizer requires, and a power of
// two, which best fills the groups that multiprocessors come in.
constexpr ColumnRingPlan PlanColumnRingAs(int variant, size_t element_bytes,
                                          const ColumnShape& shape) {
  if (shape.n > RingAxisMax(variant, element_bytes)) return {variant, 0, 0, 0, 0};
  const int row_bytes = RingRowBytes(variant, element_bytes);
  const int64_t rows = RingChunkRows(row_bytes);
  const int64_t wanted =
      std::clamp<int64_t>(CeilDivide(shape.n, kRingChunksWanted * rows), 2, kRingBlocksMax);
  const auto blocks = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(wanted)));
  const int64_t chunks = CeilDivide(shape.n, blocks * rows);
  return {variant, static_cast<int>(blocks), static_cast<int>(chunks),
          static_cast<int>(CeilDivide(shape.n, blocks * chunks)),
          CeilDivide(shape.lanes, row_bytes / kVectorBytes)};
}

// Clusters that a device has at once, about.
constexpr int64_t RingClusters(const ColumnRingPlan& plan, int32_t multiprocessors) {
  WARPCALL_DCHECK(plan.blocks > 0, plan.blocks);
  return std::max<int64_t>(1, multiprocessors / plan.blocks);
}

// Fewest panels that give each cluster two; with fewer there is nothing to copy ahead.
constexpr int64_t RingPanelsMin(const ColumnRingPlan& plan, int32_t multiprocessors) {
  return 2 * RingClusters(plan, multiprocessors);
}

// Chunks of the widest panels for each block, and panels for each cluster, with which they are
// worth their narrower neighbours' room: as measured on an H200, 89 us instead of 93 for 8192x8192
// in 16 bits and 147 instead of 163 for 4096x16384 in float32, but 100 instead of 95 for 16384x4096
// in 16 bits, where clusters have 8 panels each.
inline constexpr int kRingChunksOfWidest = kRingStages * 2 / 3;
inline constexpr int64_t kRingTurnsOfWidest = 16;

// Plans the widest panels if they are worth it, otherwise the next that hold the axis.
constexpr ColumnRingPlan PlanColumnRing(size_t element_bytes, const ColumnShape& shape,
                                        int32_t multiprocessors) {
  const ColumnRingPlan widest = PlanColumnRingAs(0, element_bytes, shape);
  if (widest.blocks > 0 && widest.chunks <= kRingChunksOfWidest &&
      widest.PanelsOf(shape) >= kRingTurnsOfWidest * RingClusters(widest, multiprocessors))
    return widest;
  int variant = 1;
  while (variant + 1 < RingVariants(element_bytes) &&
         PlanColumnRingAs(variant, element_bytes, shape).blocks == 0)
    ++variant;
  return PlanColumnRingAs(variant, element_bytes, shape);
}

}  // namespace warpcall::softmax
