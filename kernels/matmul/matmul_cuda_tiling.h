// What the tiled rows of the GPU decide about a problem before they launch: how its operands lie,
// which tile takes it, how many blocks that makes. A row's plans are made of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda_arguments.h"
#include "kernels/matmul/matmul_cuda_select.h"
#include "kernels/matmul/matmul_cuda_variants.h"
#include "kernels/plan.h"

namespace warpcall::matmul {

// The operands of a problem as a GPU kernel sees them. Tiles, splits and pointers are left at zero.
struct Arrangement {
  Arguments arguments;
  Adjacent a;
  Adjacent b;
  bool a_in_vectors;  // every row begins at a multiple of 16 bytes and holds whole such vectors
  bool b_in_vectors;
};

// REQUIRES: the output of `problem` has elements.
Arrangement ArrangementOf(const Problem& problem);

// Whether there is an output and something to sum to it.
bool HasSums(const Problem& problem);

// Of a problem without sums: writes zeros, if there is an output.
PlanPtr PlanOfZeros(const Problem& problem);

struct Tiling {
  Arrangement arrangement;
  int variant;  // number among those of the row and data type
  Choice choice;
  Tile tile;
  int64_t blocks;
  size_t shared_bytes;  // dynamic, per block
};

// A tiled row in one data type.
struct TileSet {
  TiledVariants variants;
  size_t (*shared_bytes)(const Tile&);  // that one block needs
  int32_t products_per_cycle;           // of a multiprocessor at the peak rate
};

// What a tiling is made for.
struct Order {
  Arrangement arrangement;
  bool in_vectors;  // whether the operands may come by 16 bytes
  int variant = kRowsChoice;
};

// For the row's own choice: UNIMPLEMENTED when no tile fits into the device's shared memory or the
// grid would be too large. For a variant: INVALID_ARGUMENT when it cannot take the problem.
// REQUIRES: HasSums(problem) of the arrangement's problem.
absl::StatusOr<Tiling> MakeTiling(const Order& order, const TileSet& set,
                                  const DeviceProperties& device);

std::vector<std::string> NamesOf(const TiledVariants& variants);

// UNIMPLEMENTED before compute capability 8.0, the first with cp.async and, for bfloat16, mma.sync.
absl::Status CheckTiledArchitecture(absl::string_view row, const DeviceProperties& device);

// What a multiprocessor multiplies in a cycle at its peak rate: elements of 16 bits on tensor
// cores, and float32.
int32_t TensorProductsPerCycle(const DeviceProperties& device);
int32_t FloatProductsPerCycle(const DeviceProperties& device);

inline Size SizeOf(const Arguments& arguments) {
  return {arguments.m, arguments.n, arguments.k, arguments.batches};
}

}  // namespace warpcall::matmul
