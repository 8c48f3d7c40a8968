// Chooses a kernel of cluster_per_row and the number of blocks in a cluster for a problem: pure
// functions, no CUDA.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/softmax/softmax_cuda_select.h"
#include "proto/common/check.h"

namespace warpcall::softmax {

inline constexpr int kClusterBlocksMax = 16;

// A block's part of a row lies in its threads' registers.
struct ClusterShape {
  int threads;
  int elements;  // per thread
  int stages;    // chunks, of a vector for each thread, that are copied ahead; 0: none, a row a
                 // cluster
  int resident;  // per multiprocessor

  constexpr int capacity() const { return threads * elements; }
};

// Two shapes for few rows, and two that stream: with small parts, and with large ones for rows of
// too many small parts. As measured on an H200, by bytes of an element.
inline constexpr ClusterShape kClusterShapesOf4[] = {
    {256, 32, 0, 4}, {512, 64, 0, 1}, {512, 32, 26, 1}, {512, 64, 26, 1}};
inline constexpr ClusterShape kClusterShapesOf2[] = {
    {256, 32, 0, 4}, {256, 64, 0, 2}, {256, 64, 26, 2}, {512, 64, 20, 1}};
inline constexpr int kClusterVariants = std::size(kClusterShapesOf4);
static_assert(kClusterVariants == std::size(kClusterShapesOf2));
inline constexpr int kFewRowsVariants = 2;

constexpr const ClusterShape& ClusterShapeOf(int variant, size_t element_bytes) {
  WARPCALL_DCHECK(variant >= 0 && variant < kClusterVariants, variant);
  return element_bytes == sizeof(float) ? kClusterShapesOf4[variant] : kClusterShapesOf2[variant];
}

struct ClusterPlan {
  int variant;
  int blocks;  // per cluster; 0: none takes the rows
  int share;   // vectors per block
};

// Plans clusters of a variant for rows of n: as few blocks as hold a row, but at least two, as
// compute-sanitizer requires. Every block begins at a line of 128 bytes of its row; the second
// block of a very short row has no elements.
constexpr ClusterPlan PlanClusterAs(int variant, int64_t n, size_t element_bytes) {
  constexpr int64_t kLineVectors = 8;
  const ClusterShape& shape = ClusterShapeOf(variant, element_bytes);
  const int width = WidestVector(element_bytes);
  const int64_t blocks = std::max<int64_t>(2, CeilDivide(n, shape.capacity()));
  if (n < 1 || n % width != 0 || blocks > kClusterBlocksMax) return {variant, 0, 0};
  const int64_t share = CeilDivide(CeilDivide(n / width, blocks), kLineVectors) * kLineVectors;
  return {variant, static_cast<int>(blocks), static_cast<int>(share)};
}

// Does not stream rows if each cluster would take few: up to four for each cluster that runs at
// once. Parts are small where clusters of 8 or fewer blocks have room for a row: such clusters
// leave few multiprocessors out.
constexpr ClusterPlan PlanCluster(int64_t rows, int64_t n, size_t element_bytes,
                                  int32_t multiprocessors) {
  constexpr int64_t kRowsOfACluster = 4;
  for (int variant = 0; variant < kFewRowsVariants; ++variant) {
    const ClusterPlan plan = PlanClusterAs(variant, n, element_bytes);
    const int64_t at_once =
        int64_t{multiprocessors} * ClusterShapeOf(variant, element_bytes).resident;
    if (plan.blocks > 0 && SaturatingMultiply(rows, plan.blocks) <= kRowsOfACluster * at_once)
      return plan;
  }
  const ClusterPlan small = PlanClusterAs(kFewRowsVariants, n, element_bytes);
  constexpr int kBlocksOfSmallMax = 8;
  if (small.blocks > 0 && small.blocks <= kBlocksOfSmallMax) return small;
  return PlanClusterAs(kFewRowsVariants + 1, n, element_bytes);
}

// The longest row that a cluster holds.
constexpr int64_t ClusterLengthMax(size_t element_bytes) {
  return int64_t{kClusterBlocksMax} *
         ClusterShapeOf(kClusterVariants - 1, element_bytes).capacity();
}

// With fewer blocks than this, two_pass's chunks share the device better.
constexpr int64_t ClusterBlocksMin(int32_t multiprocessors) { return multiprocessors / 3; }

}  // namespace warpcall::softmax
