// Decisions of the GPU's tiled implementations about a problem before a launch: the layout of its
// operands, its tile and its number of blocks. Their plans are made of these.
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
#include "kernels/matmul/matmul_cuda_pad.h"
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

// Returns true if there is an output and something to sum to it.
bool HasSums(const Problem& problem);

// Plans a problem without sums: writes zeros, if there is an output.
PlanPtr PlanOfZeros(const Problem& problem);

struct Tiling {
  Arrangement arrangement;  // with the copies in the operands' place, if they are turned
  // Copies of the operands along m and n, in the workspace; of 0 rows: the operand is read as it
  // lies.
  PaddedRows a_turned = {0, 1, sizeof(float)};
  PaddedRows b_turned = {0, 1, sizeof(float)};
  int variant;  // number among the implementation's for the data type
  Choice choice;
  Tile tile;
  int64_t blocks;
  size_t shared_bytes;  // dynamic, per block

  size_t copies_bytes() const;
  size_t left_flag_bytes() const;
  size_t workspace_bytes() const;  // copies, then partial sums or those that blocks leave
  int32_t gpu_kernels() const;
};

// Enqueues zeros for the flags of LeftSums, if there are any.
absl::Status LowerFlags(void* flags, size_t bytes, const LaunchContext& context);

// A tiled implementation in one data type.
struct TileSet {
  TiledVariants variants;
  size_t (*shared_bytes)(const Tile&);  // per block
  int32_t products_per_cycle;           // per multiprocessor, at the peak rate
  bool turns = false;                   // operands of float32 along k may be turned first
  bool shares = false;                  // blocks may share tiles; see Runs
};

// The input of MakeTiling.
struct Order {
  Arrangement arrangement;
  bool in_vectors;  // true: the operands may come by 16 bytes
  int variant = kRowsChoice;
};

// Operands that both have rows and columns enough are turned, if `set` allows it: their kernel
// loads vectors, the others elements. For the implementation's own choice: UNIMPLEMENTED if no tile
// fits into the device's shared memory or the grid would be too large. For a variant:
// INVALID_ARGUMENT if it cannot take the problem. REQUIRES: HasSums(problem) of the arrangement's
// problem.
absl::StatusOr<Tiling> MakeTiling(const Order& order, const TileSet& set,
                                  const DeviceProperties& device);

// register_tiled's tiling of a product: MakeTiling with its tiles.
absl::StatusOr<Tiling> RegisterTilingOf(const Problem& problem, const DeviceProperties& device,
                                        int variant);

std::vector<std::string> NamesOf(const TiledVariants& variants);

// UNIMPLEMENTED before compute capability 8.0, the first with cp.async and, for bfloat16, mma.sync.
absl::Status CheckTiledArchitecture(absl::string_view row, const DeviceProperties& device);

// Products per cycle of a multiprocessor at its peak rate: of elements of 16 bits on tensor cores,
// and of float32.
int32_t TensorProductsPerCycle(const DeviceProperties& device);
int32_t FloatProductsPerCycle(const DeviceProperties& device);

inline Size SizeOf(const Arguments& arguments) {
  return {arguments.m, arguments.n, arguments.k, arguments.batches};
}

}  // namespace warpcall::matmul
