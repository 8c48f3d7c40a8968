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
inline constexpr int kRingFixedBytesMax = 14 << 10;
inline constexpr int kRingSharedBytes = kRingStages * kRingChunkBytes + kRingFixedBytesMax;

// Chunks of one panel for each block: as few as are worth an exchange, and no more than leave room
// for some of the next panel.
inline constexpr int kRingChunksWanted = 4;
inline constexpr int kRingChunksMax = kRingStages - 2;

// Columns of a panel by variant; the second variant holds an axis twice as long. The first that
// holds the axis is taken. Elements of 16 bits have only the first: a chunk holds 256 of its rows
// of 64 bytes, the most that a tensor map's box can have.
inline constexpr int kRingColumns[] = {32, 16};

constexpr int RingVariants(size_t element_bytes) { return element_bytes == sizeof(float) ? 2 : 1; }

constexpr int RingRowBytes(int variant, size_t element_bytes) {
  WARPCALL_DCHECK(variant >= 0 && variant < RingVariants(element_bytes), variant, element_bytes);
  return kRingColumns[variant] * static_cast<int>(element_bytes);
}

// Rows that a chunk has room for.
constexpr int RingChunkRows(int row_bytes) { return kRingChunkBytes / row_bytes; }

// The shortest axis. For shorter axes cluster_per_columns is as fast or faster, measured on an H100
// in microseconds, the ring's first. 16 bits: 115 and 116 for 2048x32768, 112 and 114 for
// 8x4096x2048, 115 and 129 for 8192x8192. float32: 209 and 209 for 8192x8192, 213 and 236 for
// 16384x4096, as clusters hold more than 8192 elements only of columns of 64 bytes, not of 128.
constexpr int64_t RingAxisMin(size_t element_bytes) {
  return element_bytes == sizeof(float) ? 8193 : 4096;
}

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

constexpr ColumnRingPlan PlanColumnRing(size_t element_bytes, const ColumnShape& shape) {
  int variant = 0;
  while (variant + 1 < RingVariants(element_bytes) &&
         PlanColumnRingAs(variant, element_bytes, shape).blocks == 0)
    ++variant;
  return PlanColumnRingAs(variant, element_bytes, shape);
}

// Fewest panels that give each cluster two; with fewer there is nothing to copy ahead.
constexpr int64_t RingPanelsMin(const ColumnRingPlan& plan, int32_t multiprocessors) {
  WARPCALL_DCHECK(plan.blocks > 0, plan.blocks);
  return 2 * std::max<int64_t>(1, multiprocessors / plan.blocks);
}

}  // namespace warpcall::softmax
