// Divides a strided axis among a block's threads: a pure function, no CUDA.
//
// A tensor [outer, n, inner] is a stack of `outer` slabs of n x inner elements. Neighbouring
// threads take neighbouring columns (or vectors of columns), then elements of the axis, then slabs:
// when a tile has all columns of its slab, threads are in the order of memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/saturate.h"
#include "proto/common/check.h"

namespace warpcall::softmax {

struct ColumnShape {
  int64_t outer;
  int64_t n;
  int64_t lanes;  // vectors of columns in a slab: inner / width
};

struct ColumnTile {
  int columns;     // lanes of one slab, side by side
  int slices;      // threads that share the axis of a column
  int slabs;       // more than 1 only where `columns` is all lanes
  int64_t across;  // tiles side by side in one slab
  int64_t blocks;

  constexpr int threads() const { return columns * slices * slabs; }
};

struct TileLimits {
  int threads_max;   // in a block
  int held;          // elements of the axis that one thread may hold
  int vector_bytes;  // per lane
  int32_t multiprocessors;
};

// Bytes of one index of the axis that a tile reads in one piece: a cache line, or a sector where
// tiles of a line would be too few to keep the device busy.
inline constexpr int kLineBytes = 128;
inline constexpr int kSectorBytes = 32;

// REQUIRES: shape counts are positive, limits.threads_max >= kLineBytes / 2.
constexpr ColumnTile PlanColumns(const ColumnShape& shape, const TileLimits& limits) {
  WARPCALL_DCHECK(shape.outer > 0 && shape.n > 0 && shape.lanes > 0, shape.outer, shape.n,
                  shape.lanes);
  WARPCALL_DCHECK(limits.threads_max >= kLineBytes / 2, limits.threads_max);
  const auto lanes_of = [&](int bytes) {
    return static_cast<int>(
        std::min<int64_t>(shape.lanes, std::max(1, bytes / limits.vector_bytes)));
  };
  int columns = lanes_of(kLineBytes);
  const int64_t tiles = SaturatingMultiply(CeilDivide(shape.lanes, columns), shape.outer);
  if (tiles < limits.multiprocessors) columns = lanes_of(kSectorBytes);
  ColumnTile tile{};
  tile.slices = static_cast<int>(
      std::min<int64_t>(CeilDivide(shape.n, limits.held), limits.threads_max / columns));
  // Threads that the axis leaves over take more columns, in whole pieces, and then more slabs.
  const int64_t fitting = std::min<int64_t>(shape.lanes, limits.threads_max / tile.slices);
  tile.columns = static_cast<int>(fitting == shape.lanes ? fitting : fitting / columns * columns);
  tile.across = CeilDivide(shape.lanes, tile.columns);
  const int slabs_max = tile.across == 1 ? limits.threads_max / (tile.columns * tile.slices) : 1;
  tile.slabs = static_cast<int>(std::min<int64_t>(shape.outer, slabs_max));
  tile.blocks = SaturatingMultiply(tile.across, CeilDivide(shape.outer, tile.slabs));
  WARPCALL_DCHECK(tile.columns > 0 && tile.slices > 0 && tile.slabs > 0, tile.columns, tile.slices,
                  tile.slabs);
  WARPCALL_DCHECK(tile.threads() <= limits.threads_max, tile.threads(), limits.threads_max);
  return tile;
}

}  // namespace warpcall::softmax
