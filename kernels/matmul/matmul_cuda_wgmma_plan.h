// Decisions of wgmma_tiled about a problem before a launch, and the kernel's arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/cluster_launch.h"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/matmul/matmul_cuda_tiling.h"
#include "kernels/matmul/matmul_cuda_wgmma_arguments.h"
#include "kernels/matmul/matmul_cuda_wgmma_select.h"
#include "kernels/plan.h"

namespace warpcall::matmul {

// How an operand is brought into the layout that the kernel takes.
enum class WgmmaCopy : uint8_t { kNone, kPadded, kTurned };

// An operand as the kernel sees it.
struct WgmmaOperand {
  cuda::MatrixStack stack;  // the copy's, if there is one
  Adjacent adjacent;
  int box_rows;
  WgmmaCopy copy;
  size_t copy_bytes;  // 0 without a copy
};

struct WgmmaTiling {
  int variant;   // number among the implementation's
  bool swapped;  // the product's b is `a`, and m and n are swapped but for `c`
  WgmmaTile tile;
  WgmmaOperand a;
  WgmmaOperand b;
  cuda::MatrixStack c;
  WgmmaGeometry geometry;
  uint32_t blocks;
  bool early;  // as in cuda::Grid

  // True if each cluster has one tile.
  bool is_one_wave() const {
    return uint64_t{geometry.work} * static_cast<uint64_t>(tile.blocks) == blocks;
  }
  // One kernel pads both operands.
  int gpu_kernels() const {
    const bool both = a.copy == WgmmaCopy::kPadded && b.copy == WgmmaCopy::kPadded;
    return 1 + (a.copy_bytes > 0) + (b.copy_bytes > 0) - both;
  }
  // Blocks that share tiles.
  uint32_t sharing() const { return geometry.runs.count * static_cast<uint32_t>(tile.blocks); }
  size_t flag_bytes() const { return LeftFlagBytes(sharing(), tile.consumers() * 128); }
  size_t left_bytes() const {
    return LeftBytes(sharing(), tile.consumers() * 128, tile.m * tile.n);
  }
  size_t workspace_bytes() const { return a.copy_bytes + b.copy_bytes + left_bytes(); }
  cuda::Grid grid() const {
    return {.blocks = dim3(blocks),
            .threads = dim3(static_cast<unsigned>(tile.threads())),
            .shared_bytes = WgmmaSharedBytes(tile),
            .early = early};
  }
};

// The input of MakeWgmmaTiling.
struct WgmmaOrder {
  const Problem& product;
  Arrangement arrangement;  // the product's
  WgmmaVariants variants;
  int variant = kRowsChoice;
  bool always_in_classes = false;  // reads a in classes of rows wherever it can, for tests
};

// Rows of a that have the same number modulo kWgmmaClasses, as their tensor map describes them. The
// map begins `bytes_before` into a: at the last multiple of 16 bytes before the first of the rows.
struct WgmmaClass {
  cuda::MatrixStack stack;
  int64_t bytes_before;
};

// Returns class i of the tiling's a. REQUIRES: a has kWgmmaClasses rows at least.
WgmmaClass WgmmaClassOf(const WgmmaTiling& tiling, int i);

// UNIMPLEMENTED if the device's compute capability is not 9.0, or if this build has no code for the
// device.
absl::Status CheckWgmmaArchitecture(absl::string_view row, const DeviceProperties& device);

// For the implementation's own choice: UNIMPLEMENTED if sizes are too large for tensor maps or for
// a grid. For a variant: INVALID_ARGUMENT if it cannot take the problem. REQUIRES:
// HasSums(order.product).
absl::StatusOr<WgmmaTiling> MakeWgmmaTiling(const WgmmaOrder& order,
                                            const DeviceProperties& device);

// Enqueues the copies that are needed, lowers the flags of shared tiles, and makes the kernel's
// arguments. These hold the operands' addresses: they are good for this launch, and for replays of
// a recording of it.
absl::StatusOr<WgmmaArguments> PrepareWgmma(const WgmmaTiling& tiling, const Operands& operands,
                                            const LaunchContext& context);

std::vector<std::string> NamesOf(const WgmmaVariants& variants);

// Returns `tiling` for launches of `kernel`. Short launches may begin early; long launches lose as
// much by an early start as short ones gain.
inline WgmmaTiling LaunchedAs(const void* kernel, WgmmaTiling tiling,
                              const DeviceProperties& device) {
  tiling.early = tiling.is_one_wave() && cuda::IsLaunchedEarly(kernel, device);
  return tiling;
}

// Enqueues a kernel, in clusters if its tile takes several blocks.
template <typename... Parameters>
absl::Status LaunchWgmma(void (*kernel)(Parameters...), const WgmmaTiling& tiling,
                         const LaunchContext& context, const Parameters&... parameters) {
  if (tiling.tile.blocks == 1) return cuda::Launch(kernel, tiling.grid(), context, parameters...);
  return cuda::LaunchClusters(kernel, {tiling.grid(), tiling.tile.blocks}, context, parameters...);
}

// A plan of matmul: copies, where they are needed, and the kernel.
PlanPtr NewWgmmaPlan(void (*kernel)(WgmmaArguments), const WgmmaTiling& chosen,
                     const PlanContext& context);

}  // namespace warpcall::matmul
