// Back-to-back multiply-adds on operands that stay where they are: of wgmma in shared memory, the
// sums in registers, two warpgroups a multiprocessor as in a product of matrices; of fma all in
// registers. On an H200 at 690 W 820 to 930 TFLOP/s in bfloat16, 880 in float16, 480 in tf32; at
// 1980 MHz 66 in float32.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/multiply_adds.h"

namespace warpcall::cuda {
namespace {

constexpr int kThreads = 256;

// Returns a number from -1 to 1, mixed as in C. Wellons' hash prospector.
__device__ float Random(uint32_t i) {
  i = (i ^ i >> 16) * 0x7FEB352Du;
  i = (i ^ i >> 15) * 0x846CA68Bu;
  return static_cast<float>(static_cast<int32_t>(i ^ i >> 16)) * 0x1p-31f;
}

// Keeps the compiler from removing sums that are otherwise unused. The sums are finite.
template <int kCount>
__device__ void Use(const float (&sums)[kCount]) {
  float total = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) total += sums[i];
  if (!(fabsf(total) <= FLT_MAX)) __trap();
}

// ---- fma ----

// Chains of a thread. That all have one factor and one term is what the unit's full rate takes: of
// three registers that are all others each time, as in a product of matrices, the best of several
// arrangements came to 58 of 66 TFLOP/s on an H200.
constexpr int kChains = 64;
constexpr int kFmaBlocksPerMultiprocessor = 2;
// A round takes 256 cycles.
constexpr int kFmaRounds = 16384;

__global__ void __launch_bounds__(kThreads, kFmaBlocksPerMultiprocessor) Fma(int rounds) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  // They bring each chain to a limit, so that none becomes infinite.
  const float factor = Random(2 * thread), term = Random(2 * thread + 1);
  float sums[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) sums[i] = static_cast<float>(i);
#pragma unroll 4
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) sums[i] = __fmaf_rn(sums[i], factor, term);
  }
  Use(sums);
}

// ---- wgmma ----

// 64 rows of a for each of two warpgroups, by 256 columns of b that both read; rows and columns are
// 128 bytes of k, of which an instruction takes 32.
constexpr int kWarpgroups = kThreads / 128;
constexpr int kRows = 64;
constexpr int kColumns = 256;
constexpr int kDepthBytes = 128;
constexpr int kStepBytes = 32;
constexpr int kABytes = kRows * kDepthBytes;
constexpr int kStageBytes = kWarpgroups * kABytes + kColumns * kDepthBytes;
// The most that a multiprocessor holds, so that operands change as they do in a product.
constexpr int kStages = 4;
constexpr int kSwizzleBytes = 1024;  // alignment of addresses
constexpr int kSharedBytes = kStages * kStageBytes + kSwizzleBytes;
// A round takes 4096 cycles at least.
constexpr int kWgmmaRounds = 1024;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <Arithmetic kArithmetic>
__device__ uint32_t RandomWord(uint32_t i) {
  if constexpr (kArithmetic == Arithmetic::kTf32) return __float_as_uint(Random(i));
  const float low = Random(2 * i), high = Random(2 * i + 1);
  if constexpr (kArithmetic == Arithmetic::kFloat16) {
    return __half_as_ushort(__float2half_rn(high)) << 16 | __half_as_ushort(__float2half_rn(low));
  } else {
    return __bfloat16_as_ushort(__float2bfloat16_rn(high)) << 16 |
           __bfloat16_as_ushort(__float2bfloat16_rn(low));
  }
}

// Returns the descriptor of an operand with k adjacent in rows of 128 bytes, eight of which make
// 1024, swizzled (PTX ISA, "Matrix Descriptor Format"): addresses and strides in 16 bytes.
__device__ uint64_t DescriptorAt(uint32_t address) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 16 |
         (address & 0x3FFFF) >> 4;
}

#define WARPCALL_SUMS_8(i)                                                                   \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define WARPCALL_SUMS_32(i) \
  WARPCALL_SUMS_8(i), WARPCALL_SUMS_8(i + 8), WARPCALL_SUMS_8(i + 16), WARPCALL_SUMS_8(i + 24)
// INSTRUCTION with its shape and types; TRANSPOSED: of 16-bit types, that k is adjacent in both.
#define WARPCALL_WGMMA(INSTRUCTION, TRANSPOSED)                                               \
  asm volatile(                                                                               \
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %130, 0;\n\t"                                 \
      "wgmma.mma_async.sync.aligned." INSTRUCTION                                             \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "    \
      "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "      \
      "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "      \
      "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "      \
      "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "      \
      "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "      \
      "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "    \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "  \
      "%126, %127}, %128, %129, add, 1, 1" TRANSPOSED ";\n\t}\n"                              \
      : WARPCALL_SUMS_32(0), WARPCALL_SUMS_32(32), WARPCALL_SUMS_32(64), WARPCALL_SUMS_32(96) \
      : "l"(a), "l"(b), "r"(1))

template <Arithmetic kArithmetic>
__device__ void Multiply(float (&sums)[kColumns / 2], uint64_t a, uint64_t b) {
  if constexpr (kArithmetic == Arithmetic::kTf32) {
    WARPCALL_WGMMA("m64n256k8.f32.tf32.tf32", "");
  } else if constexpr (kArithmetic == Arithmetic::kFloat16) {
    WARPCALL_WGMMA("m64n256k16.f32.f16.f16", ", 0, 0");
  } else {
    WARPCALL_WGMMA("m64n256k16.f32.bf16.bf16", ", 0, 0");
  }
}

#undef WARPCALL_SUMS_8
#undef WARPCALL_SUMS_32
#undef WARPCALL_WGMMA

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <Arithmetic kArithmetic>
__global__ void __launch_bounds__(kThreads, 1) Wgmma([[maybe_unused]] int rounds) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t memory[];
  const auto unaligned = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const uint32_t shared = (unaligned + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  auto* const words = reinterpret_cast<uint32_t*>(memory + (shared - unaligned));
  constexpr int kWords = kStages * kStageBytes / 4;
  for (int i = threadIdx.x; i < kWords; i += kThreads)
    words[i] = RandomWord<kArithmetic>(blockIdx.x * kWords + i);
  // Tensor cores read it by another way than the threads wrote it.
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
  __syncthreads();
  const uint32_t a = shared + threadIdx.x / 128 * kABytes;
  const uint32_t b = shared + kWarpgroups * kABytes;
  float sums[kColumns / 2] = {};
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
#pragma unroll
      for (int step = 0; step < kDepthBytes; step += kStepBytes)
        Multiply<kArithmetic>(sums, DescriptorAt(a + stage * kStageBytes + step),
                              DescriptorAt(b + stage * kStageBytes + step));
    }
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
    // The other warpgroup multiplies meanwhile.
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
  }
  Use(sums);
#endif
}

MultiplyAdds PlanOf(void (*kernel)(int), int rounds, const Grid& grid, int64_t flops_of_block) {
  const int64_t blocks = grid.blocks.x;
  return {NewPlan({},
                  [=](const Operands&, const LaunchContext& context) {
                    return Launch(kernel, grid, context, rounds);
                  }),
          blocks * rounds * flops_of_block};
}

template <Arithmetic kArithmetic>
MultiplyAdds WgmmaPlan(unsigned multiprocessors) {
  constexpr int64_t kElementBytes = kArithmetic == Arithmetic::kTf32 ? 4 : 2;
  constexpr int64_t kDepth = kStages * kDepthBytes / kElementBytes;
  return PlanOf(
      Wgmma<kArithmetic>, kWgmmaRounds,
      {.blocks = dim3(multiprocessors), .threads = dim3(kThreads), .shared_bytes = kSharedBytes},
      int64_t{2} * kWarpgroups * kRows * kColumns * kDepth);
}

absl::Status CheckWgmma(Arithmetic arithmetic, const DeviceProperties& device) {
#ifdef WARPCALL_HAS_SM90A
  if (device.architecture == 90) return absl::OkStatus();
#endif
  return absl::UnimplementedError(
      absl::StrCat("multiply-adds in ", ArithmeticName(arithmetic),
                   " are for compute capability 9.0, in a build for architecture 90a; this is ",
                   device.compute_capability));
}

}  // namespace

absl::StatusOr<MultiplyAdds> MultiplyAddsOn(Arithmetic arithmetic, const DeviceProperties& device) {
  const auto multiprocessors = static_cast<unsigned>(device.multiprocessors);
  if (arithmetic != Arithmetic::kFloat32) RETURN_IF_ERROR(CheckWgmma(arithmetic, device));
  switch (arithmetic) {
    case Arithmetic::kFloat32:
      return PlanOf(Fma, kFmaRounds,
                    {.blocks = dim3(kFmaBlocksPerMultiprocessor * multiprocessors),
                     .threads = dim3(kThreads)},
                    int64_t{2} * kThreads * kChains);
    case Arithmetic::kTf32:
      return WgmmaPlan<Arithmetic::kTf32>(multiprocessors);
    case Arithmetic::kFloat16:
      return WgmmaPlan<Arithmetic::kFloat16>(multiprocessors);
    case Arithmetic::kBFloat16:
      return WgmmaPlan<Arithmetic::kBFloat16>(multiprocessors);
  }
  return absl::InternalError("no such arithmetic");
}

}  // namespace warpcall::cuda
