// What wgmma_tiled's kernels are told about a problem. No Abseil: the kernel includes this.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/matmul/matmul_cuda_arguments.h"

namespace warpcall::matmul {

// What is known before operands are.
struct WgmmaGeometry {
  int64_t m;
  int64_t n;
  uint32_t steps;        // of k
  uint32_t stage_bytes;  // that are copied for one
  uint32_t tiles_m;
  uint32_t tiles_n;
  uint32_t work;        // tiles of clusters, in all batches
  uint32_t group_rows;  // of clusters; see PlaceOf
  bool c_in_boxes;      // c's rows begin at multiples of 16 bytes
  BatchWalk batch;      // strides count matrices
};

struct WgmmaArguments {
  CUtensorMap a;
  CUtensorMap b;
  CUtensorMap c;  // unset unless c_in_boxes
  void* out;      // c
  WgmmaGeometry of;
};

}  // namespace warpcall::matmul
