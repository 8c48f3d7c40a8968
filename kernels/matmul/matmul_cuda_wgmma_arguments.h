// A problem as wgmma_tiled's kernels get it. No Abseil: the kernel includes this.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/matmul/matmul_cuda_arguments.h"
#include "kernels/matmul/matmul_cuda_runs.h"
#include "kernels/matmul/matmul_cuda_wgmma_tiles.h"

namespace warpcall::matmul {

// The arguments that do not depend on the operands.
struct WgmmaGeometry {
  int64_t m;
  int64_t n;
  uint32_t steps;        // along k
  uint32_t stage_bytes;  // copied for one step
  uint32_t tiles_m;
  uint32_t tiles_n;
  uint32_t work;        // tiles of clusters, in all batches
  uint32_t whole;       // of them the first, which one cluster makes each
  Runs runs;            // of the others, which all clusters share
  uint32_t group_rows;  // counted in clusters; see PlaceOf
  bool c_in_boxes;      // c is written in boxes: its rows begin at multiples of 16 bytes
  uint32_t a_past;      // k % 8 if a is read in classes of rows (see kWgmmaClasses), 0 if not
  bool b_is_settled;    // it may be read before the kernel ahead has ended
  BatchWalk batch;      // strides count matrices
};

struct WgmmaArguments {
  CUtensorMap a[kWgmmaClasses];  // the first alone is set unless a is read in classes
  CUtensorMap b;
  CUtensorMap c;  // unset unless c_in_boxes
  void* out;      // c
  void* left;     // memory for sums that blocks leave to others; unset if no tile is shared
  WgmmaGeometry of;
};

}  // namespace warpcall::matmul
