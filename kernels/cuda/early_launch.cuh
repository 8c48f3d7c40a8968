// For kernels that may be launched early (early_launch.h): their blocks may be on the device while
// the kernel ahead of them still runs. Before compute capability 9.0 both functions do nothing, and
// kernels are not launched so.
#pragma once

namespace warpcall::cuda {

// Returns when the kernel ahead of this one has ended and what it wrote can be read. Every thread
// calls it before its first access to global memory, reads included: the kernel ahead may still
// write what this one reads, and read what this one writes. As no thread goes around it, a kernel
// has not ended before all that were ahead of it have.
__device__ inline void AwaitKernelAhead() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Once all blocks of this kernel have called it, blocks of the next one may take what place is
// left, if that was launched early, too: never before this kernel's own blocks have theirs. It
// promises nothing of memory.
__device__ inline void LetNextKernelBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace warpcall::cuda
