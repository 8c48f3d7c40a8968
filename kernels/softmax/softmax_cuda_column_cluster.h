// Chooses columns and cluster sizes for cluster_per_columns: pure functions, no CUDA.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/common/saturate.h"
#include "kernels/softmax/softmax_cuda_cluster.h"
#include "kernels/softmax/softmax_cuda_tile.h"
#include "proto/common/check.h"

namespace warpcall::softmax {

// A block's part of its columns lies in its threads' registers as it came from memory: so many
// vectors of 16 bytes for each thread.
inline constexpr int kColumnClusterThreads = 512;
inline constexpr int kColumnClusterVectors = 8;

// Neighbouring vectors of columns that a cluster takes, 128 to 32 bytes, by variant. The first
// variant that holds the axis is taken.
inline constexpr int kColumnClusterLanes[] = {8, 4, 2};
inline constexpr int kColumnClusterVariants = std::size(kColumnClusterLanes);

// Elements of the axis that a block holds.
constexpr int64_t ColumnClusterAxis(int variant) {
  WARPCALL_DCHECK(variant >= 0 && variant < kColumnClusterVariants, variant);
  return kColumnClusterThreads / kColumnClusterLanes[variant] * kColumnClusterVectors;
}

// The longest axis that a cluster holds.
inline constexpr int64_t kColumnClusterAxisMax =
    kClusterBlocksMax * ColumnClusterAxis(kColumnClusterVariants - 1);

struct ColumnClusterPlan {
  int variant;
  int blocks;      // per cluster; 0: none takes the axis
  int64_t share;   // elements of the axis that a block takes
  int64_t across;  // clusters side by side in one slab
};

// Plans clusters of a variant: at least two blocks each, as compute-sanitizer requires.
constexpr ColumnClusterPlan PlanColumnClusterAs(int variant, const ColumnShape& shape) {
  WARPCALL_DCHECK(shape.n >= 1 && shape.lanes >= 1, shape.n, shape.lanes);
  const int64_t blocks = std::max<int64_t>(2, CeilDivide(shape.n, ColumnClusterAxis(variant)));
  if (blocks > kClusterBlocksMax) return {variant, 0, 0, 0};
  return {variant, static_cast<int>(blocks), CeilDivide(shape.n, blocks),
          CeilDivide(shape.lanes, kColumnClusterLanes[variant])};
}

constexpr ColumnClusterPlan PlanColumnCluster(const ColumnShape& shape) {
  int variant = 0;
  while (variant + 1 < kColumnClusterVariants && PlanColumnClusterAs(variant, shape).blocks == 0)
    ++variant;
  return PlanColumnClusterAs(variant, shape);
}

}  // namespace warpcall::softmax
