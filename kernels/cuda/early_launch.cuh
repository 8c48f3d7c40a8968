// For kernels that may be launched early (early_launch.h): their blocks may be on the device while
// the kernel ahead of them still runs. Before compute capability 9.0 both functions do nothing, and
// no kernel is launched early.
#pragma once

namespace warpcall::cuda {

// Returns when the kernel ahead of this one has ended and what it wrote can be read. Every thread
// calls it before its first access to global memory, reads included, but for inputs that are
// settled (LaunchContext): the kernel ahead may still write what this one reads, and read what this
// one writes. Because every thread calls it, a kernel ends only after all kernels ahead of it.
__device__ inline void AwaitKernelAhead() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Blocks of a grid up to which they say that the next kernel may begin.
inline constexpr unsigned kBlocksThatLet = 2048;

// Called after AwaitKernelAhead alone: settled inputs count on it. Once all blocks of this kernel
// have called it or ended, blocks of the next kernel, if that was launched early, too, may start
// where the device has room. This kernel's own blocks always come first. The call orders no memory
// accesses. Does nothing in large grids: the device takes one block's word at a time, in 1.2 ns on
// an H200, so that 65536 blocks would take 81 us, where softmax of rows of 2 KiB takes 67.
__device__ inline void LetNextKernelBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (gridDim.x > kBlocksThatLet || gridDim.y > 1) return;
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace warpcall::cuda
