// Helpers of the GPU launchers. One function of each implementation makes the Grid of a problem,
// for its launch and for its shape, so that the reported shape is the one that runs.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/common/saturate.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/op.h"
#include "kernels/plan.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {

// The largest grid in x; in y and z it is 65535.
inline constexpr int64_t kGridMax = 0x7FFFFFFF;

struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;  // dynamic, per block
  bool early = false;       // launches may begin early: early_launch.h
};

// Makes the grid for any number of blocks that a tensor in memory can need: blocks beyond the limit
// of x go on in y, and the last y may have surplus blocks, which must do nothing. Kernels get their
// number from BlockIndex() in threads.cuh. The launch itself refuses more than kGridMax x 65535
// blocks, 2^47. REQUIRES: blocks > 0.
inline Grid GridOf(int64_t blocks, int threads) {
  WARPCALL_DCHECK(blocks > 0 && threads > 0 && threads <= 1024, blocks, threads);
  const int64_t x = std::min(blocks, kGridMax);
  return {.blocks = dim3(static_cast<unsigned>(x), static_cast<unsigned>(CeilDivide(blocks, x))),
          .threads = dim3(static_cast<unsigned>(threads))};
}

// Calls body(std::integral_constant<int, index>): from an index into a table of shapes to the code
// compiled for it. REQUIRES: 0 <= index < kCount.
template <int kCount, typename Body>
auto DispatchIndex(int index, const Body& body) {
  WARPCALL_DCHECK(index >= 0 && index < kCount, index);
  if constexpr (kCount > 1) {
    if (index < kCount - 1) return DispatchIndex<kCount - 1>(index, body);
  }
  return body(std::integral_constant<int, kCount - 1>{});
}

inline cudaStream_t StreamOf(const LaunchContext& context) {
  return static_cast<cudaStream_t>(context.stream);
}

// Returns the attribute of a launch that may begin early.
inline cudaLaunchAttribute EarlyAttribute() {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

// Blocks of more dynamic shared memory than 48 KiB have to be allowed, per function and device.
absl::Status AllowSharedMemory(const void* kernel, size_t bytes);

// Enqueues one kernel. REQUIRES: a grid of at least one block within the limits above.
template <typename... Parameters, typename... Arguments>
absl::Status Launch(void (*kernel)(Parameters...), const Grid& grid, const LaunchContext& context,
                    Arguments&&... arguments) {
  WARPCALL_DCHECK(grid.blocks.x > 0 && grid.blocks.y > 0 && grid.blocks.z > 0, grid.blocks.x,
                  grid.blocks.y, grid.blocks.z);
  RETURN_IF_ERROR(AllowSharedMemory(reinterpret_cast<const void*>(kernel), grid.shared_bytes));
  cudaLaunchAttribute early = EarlyAttribute();
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = StreamOf(context);
  config.attrs = &early;
  config.numAttrs = grid.early ? 1 : 0;
  return ToStatus(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
                  "launching a kernel");
}

// The kernel that stands for a plan's shape; of several, the one that counts.
struct LaunchedKernel {
  const void* kernel;
  Grid grid;
  int gpu_kernels;  // all that the plan launches
  // For a kernel that is not linked into this program: its code, which the plan keeps, and the
  // sources of that code.
  MachineCode code = {};
  std::vector<SourceFile> sources = {};

  template <typename... Parameters>
  LaunchedKernel(void (*kernel_in)(Parameters...), const Grid& grid_in, int gpu_kernels_in = 1)
      : kernel(reinterpret_cast<const void*>(kernel_in)),
        grid(grid_in),
        gpu_kernels(gpu_kernels_in) {}
};

// Computes the shape on the current device, from the occupancy API and the kernel's attributes.
// Waves are all blocks divided by the blocks that the device holds at once.
absl::StatusOr<LaunchShape> ShapeOf(const LaunchedKernel& launched, const DeviceProperties& device);

// Returns launched.code, or the name of a linked kernel if the runtime knows it.
MachineCode CodeOf(const LaunchedKernel& launched);

// A plan that calls `enqueue(operands, context)`, which is thread-safe and keeps what it needs.
template <typename Function>
PlanPtr NewKernelPlan(const Plan::Traits& traits, const LaunchedKernel& launched,
                      const PlanContext& context, Function enqueue) {
  class KernelPlan final : public Plan {
   public:
    KernelPlan(const Traits& traits, const LaunchedKernel& launched, const DeviceProperties* device,
               Function enqueue)
        : Plan(traits), launched_(launched), device_(device), enqueue_(std::move(enqueue)) {}
    absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
      return enqueue_(operands, context);
    }
    std::vector<SourceFile> Sources() const override { return launched_.sources; }
    MachineCode Code() const override { return CodeOf(launched_); }

   private:
    absl::StatusOr<LaunchShape> AskShape() const override { return ShapeOf(launched_, *device_); }

    const LaunchedKernel launched_;
    const DeviceProperties* const device_;
    const Function enqueue_;
  };
  return std::make_shared<const KernelPlan>(traits, launched, context.device, std::move(enqueue));
}

}  // namespace warpcall::cuda
