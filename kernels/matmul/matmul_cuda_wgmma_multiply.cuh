// wgmma: a warpgroup multiplies 64 x K by K x N out of shared memory, asynchronously, N being 64,
// 128, 192 or 256. Products are exact, sums float32. K is 32 bytes: 16 terms of 16 bits, or 8 of
// float32, of which the instruction takes the upper 19 bits, as tf32.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul_cuda_select.h"
#include "kernels/matmul/matmul_cuda_wgmma_descriptor.cuh"
#include "proto/common/half.h"

namespace warpcall::matmul {

// Called before the first multiplication, and after registers that hold sums were touched.
__device__ inline void FenceSums() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }

// Makes one group of the multiplications since the last call.
__device__ inline void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// Waits until all but the `kPending` youngest groups are done.
template <int kPending>
__device__ inline void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// sums[64, N] = (add ? sums : 0) + a[64, K] x b[K, N]. Each 8 columns j give a thread sums[4 j] and
// the next, in row lane / 4 of its warp's 16 and columns 2 (lane % 4) and the next, and sums[4 j +
// 2] and the next, in the row 8 below (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16").
template <typename T, Adjacent kA, Adjacent kB>
struct Wgmma;

#define WARPCALL_SUMS_8(i)                                                                   \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define WARPCALL_SUMS_32(i) \
  WARPCALL_SUMS_8(i), WARPCALL_SUMS_8(i + 8), WARPCALL_SUMS_8(i + 16), WARPCALL_SUMS_8(i + 24)

// The registers of N / 2 sums in an instruction's text.
#define WARPCALL_REGISTERS_32                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WARPCALL_REGISTERS_64                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, " \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WARPCALL_REGISTERS_96                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, " \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, " \
  "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WARPCALL_REGISTERS_128                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "     \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "     \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "     \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "     \
  "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "     \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "     \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "   \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
  "%126, %127"

// TYPE is PTX's name; REGISTERS and SUMS are the shape's; the operands that follow have the numbers
// A, B (descriptors) and ADD (a predicate's source); LIE gives their layout.
#define WARPCALL_WGMMA(SHAPE, TYPE, REGISTERS, A, B, ADD, LIE, ...)                               \
  asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, " ADD                                    \
               ", 0;\n\t"                                                                         \
               "wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " {" REGISTERS "}, " A \
               ", " B ", add, 1, 1" LIE ";\n\t}\n"                                                \
               : __VA_ARGS__                                                                      \
               : "l"(a), "l"(b), "r"(add), "n"(kTransposeA), "n"(kTransposeB))

// 1: k is not adjacent. In tf32 k always is.
#define WARPCALL_LIE(TA, TB) ", " TA ", " TB
#define WARPCALL_LIE_ALONG_K(TA, TB) ""

#define WARPCALL_WGMMA_OF_TYPE(ELEMENT, TYPE, K, LIE)                                      \
  template <Adjacent kA, Adjacent kB>                                                      \
  struct Wgmma<ELEMENT, kA, kB> {                                                          \
    static constexpr int kTransposeA = kA == Adjacent::kDepth ? 0 : 1;                     \
    static constexpr int kTransposeB = kB == Adjacent::kDepth ? 0 : 1;                     \
    __device__ static void Multiply(float (&sums)[32], uint64_t a, uint64_t b, int add) {  \
      WARPCALL_WGMMA("m64n64" K, TYPE, WARPCALL_REGISTERS_32, "%32", "%33", "%34",         \
                     LIE("%35", "%36"), WARPCALL_SUMS_32(0));                              \
    }                                                                                      \
    __device__ static void Multiply(float (&sums)[64], uint64_t a, uint64_t b, int add) {  \
      WARPCALL_WGMMA("m64n128" K, TYPE, WARPCALL_REGISTERS_64, "%64", "%65", "%66",        \
                     LIE("%67", "%68"), WARPCALL_SUMS_32(0), WARPCALL_SUMS_32(32));        \
    }                                                                                      \
    __device__ static void Multiply(float (&sums)[96], uint64_t a, uint64_t b, int add) {  \
      WARPCALL_WGMMA("m64n192" K, TYPE, WARPCALL_REGISTERS_96, "%96", "%97", "%98",        \
                     LIE("%99", "%100"), WARPCALL_SUMS_32(0), WARPCALL_SUMS_32(32),        \
                     WARPCALL_SUMS_32(64));                                                \
    }                                                                                      \
    __device__ static void Multiply(float (&sums)[128], uint64_t a, uint64_t b, int add) { \
      WARPCALL_WGMMA("m64n256" K, TYPE, WARPCALL_REGISTERS_128, "%128", "%129", "%130",    \
                     LIE("%131", "%132"), WARPCALL_SUMS_32(0), WARPCALL_SUMS_32(32),       \
                     WARPCALL_SUMS_32(64), WARPCALL_SUMS_32(96));                          \
    }                                                                                      \
  }

WARPCALL_WGMMA_OF_TYPE(Float16, "f16", "k16", WARPCALL_LIE);
WARPCALL_WGMMA_OF_TYPE(BFloat16, "bf16", "k16", WARPCALL_LIE);
WARPCALL_WGMMA_OF_TYPE(float, "tf32", "k8", WARPCALL_LIE_ALONG_K);

// Takes a from registers: rows lane / 4 and 8 below of the warp's 16, at term lane % 4 of k and
// then at the fourth after it (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk8"). The
// registers may not change until the multiplication is done.
#define WARPCALL_WGMMA_FROM_REGISTERS(SHAPE, REGISTERS, A0, A1, A2, A3, B, ADD, ...)        \
  asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, " ADD                              \
               ", 0;\n\t"                                                                   \
               "wgmma.mma_async.sync.aligned." SHAPE ".f32.tf32.tf32 {" REGISTERS "}, {" A0 \
               ", " A1 ", " A2 ", " A3 "}, " B ", add, 1, 1;\n\t}\n"                        \
               : __VA_ARGS__                                                                \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

__device__ inline void MultiplyFromRegisters(float (&sums)[32], const uint32_t* a, uint64_t b,
                                             int add) {
  WARPCALL_WGMMA_FROM_REGISTERS("m64n64k8", WARPCALL_REGISTERS_32, "%32", "%33", "%34", "%35",
                                "%36", "%37", WARPCALL_SUMS_32(0));
}
__device__ inline void MultiplyFromRegisters(float (&sums)[64], const uint32_t* a, uint64_t b,
                                             int add) {
  WARPCALL_WGMMA_FROM_REGISTERS("m64n128k8", WARPCALL_REGISTERS_64, "%64", "%65", "%66", "%67",
                                "%68", "%69", WARPCALL_SUMS_32(0), WARPCALL_SUMS_32(32));
}
__device__ inline void MultiplyFromRegisters(float (&sums)[96], const uint32_t* a, uint64_t b,
                                             int add) {
  WARPCALL_WGMMA_FROM_REGISTERS("m64n192k8", WARPCALL_REGISTERS_96, "%96", "%97", "%98", "%99",
                                "%100", "%101", WARPCALL_SUMS_32(0), WARPCALL_SUMS_32(32),
                                WARPCALL_SUMS_32(64));
}
__device__ inline void MultiplyFromRegisters(float (&sums)[128], const uint32_t* a, uint64_t b,
                                             int add) {
  WARPCALL_WGMMA_FROM_REGISTERS("m64n256k8", WARPCALL_REGISTERS_128, "%128", "%129", "%130", "%131",
                                "%132", "%133", WARPCALL_SUMS_32(0), WARPCALL_SUMS_32(32),
                                WARPCALL_SUMS_32(64), WARPCALL_SUMS_32(96));
}

#undef WARPCALL_SUMS_8
#undef WARPCALL_SUMS_32
#undef WARPCALL_REGISTERS_32
#undef WARPCALL_REGISTERS_64
#undef WARPCALL_REGISTERS_96
#undef WARPCALL_REGISTERS_128
#undef WARPCALL_WGMMA
#undef WARPCALL_WGMMA_FROM_REGISTERS
#undef WARPCALL_LIE
#undef WARPCALL_LIE_ALONG_K
#undef WARPCALL_WGMMA_OF_TYPE

}  // namespace warpcall::matmul
