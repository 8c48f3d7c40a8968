// Vectors of neighbouring elements, the unit in which kernels touch global memory: up to 16 bytes,
// the widest access before compute capability 10.0. An element is stored as float, Float16 or
// BFloat16; arithmetic is done in float.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/vector_width.h"
#include "proto/common/half.h"

namespace warpcall::cuda {

// Elements of T in the widest vector.
template <typename T>
inline constexpr int kVectorWidth = kVectorBytes / static_cast<int>(sizeof(T));

// Named apart from the host's ToFloat and FromFloat, which argument-dependent lookup would find.
__device__ inline float Widen(float value) { return value; }

__device__ inline float Widen(Float16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}

__device__ inline float Widen(BFloat16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN (not its payload), overflow becomes infinity.
template <typename T>
__device__ T Narrow(float value) {
  if constexpr (std::is_same_v<T, Float16>) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return {bits};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return {bits};
  } else {
    static_assert(std::is_same_v<T, float>);
    return value;
  }
}

// Two elements of 16 bits in a register, the first in the lower half.
template <typename T>
__device__ void WidenPair(uint32_t pair, float* first, float* second) {
  if constexpr (std::is_same_v<T, Float16>) {
    asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\t"
        "cvt.f32.f16 %0, low;\n\tcvt.f32.f16 %1, high;\n\t}"
        : "=f"(*first), "=f"(*second)
        : "r"(pair));
  } else {
    static_assert(std::is_same_v<T, BFloat16>);
    *first = __uint_as_float(pair << 16);
    *second = __uint_as_float(pair & 0xFFFF0000u);
  }
}

template <typename T>
__device__ uint32_t NarrowPair(float first, float second) {
  uint32_t pair;  // the instructions take the upper half first
  if constexpr (std::is_same_v<T, Float16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    static_assert(std::is_same_v<T, BFloat16>);
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
  return pair;
}

// One access of 2, 4, 8 or 16 bytes, which must be aligned to its size.
template <int kBytes>
struct Access;

// Streaming loads bypass the L1 cache, for elements read once. LoadStreaming promises the
// hardware and the assembler that nothing writes the memory while the kernel runs. LoadAwaited
// does not: a kernel launched early (early_launch.cuh) runs while the one ahead writes. Streaming
// stores leave the L2 cache first. None is merged with another of its kind. Where registers are
// short, the assembler may move a load down to its use: check SASS of kernels with several in
// flight.
template <>
struct Access<2> {
  using Raw = uint16_t;
  static __device__ Raw LoadStreaming(const Raw* at) {
    Raw raw;
    asm volatile("ld.global.nc.L1::no_allocate.b16 %0, [%1];" : "=h"(raw) : "l"(at));
    return raw;
  }
  static __device__ Raw LoadAwaited(const Raw* at) {
    Raw raw;
    asm volatile("ld.global.L1::no_allocate.b16 %0, [%1];" : "=h"(raw) : "l"(at) : "memory");
    return raw;
  }
};

template <>
struct Access<4> {
  using Raw = uint32_t;
  static __device__ Raw LoadStreaming(const Raw* at) {
    Raw raw;
    asm volatile("ld.global.nc.L1::no_allocate.b32 %0, [%1];" : "=r"(raw) : "l"(at));
    return raw;
  }
  static __device__ Raw LoadAwaited(const Raw* at) {
    Raw raw;
    asm volatile("ld.global.L1::no_allocate.b32 %0, [%1];" : "=r"(raw) : "l"(at) : "memory");
    return raw;
  }
};

template <>
struct Access<8> {
  using Raw = uint2;
  static __device__ Raw LoadStreaming(const Raw* at) {
    Raw raw;
    asm volatile("ld.global.nc.L1::no_allocate.v2.b32 {%0, %1}, [%2];"
                 : "=r"(raw.x), "=r"(raw.y)
                 : "l"(at));
    return raw;
  }
  static __device__ Raw LoadAwaited(const Raw* at) {
    Raw raw;
    asm volatile("ld.global.L1::no_allocate.v2.b32 {%0, %1}, [%2];"
                 : "=r"(raw.x), "=r"(raw.y)
                 : "l"(at)
                 : "memory");
    return raw;
  }
};

template <>
struct Access<16> {
  using Raw = uint4;
  static __device__ Raw LoadStreaming(const Raw* at) {
    Raw raw;
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
                 : "l"(at));
    return raw;
  }
  static __device__ Raw LoadAwaited(const Raw* at) {
    Raw raw;
    asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
                 : "l"(at)
                 : "memory");
    return raw;
  }
};

// kWidth elements of T. `at` is aligned to the vector's size and in global memory.
template <typename T, int kWidth = kVectorWidth<T>>
struct Vector {
  static constexpr int kBytes = kWidth * static_cast<int>(sizeof(T));
  static_assert(kBytes >= 2 && kBytes <= kVectorBytes && std::has_single_bit(unsigned{kBytes}));
  using Raw = typename Access<kBytes>::Raw;

  Raw raw;

  static __device__ Vector Load(const T* at) { return {*reinterpret_cast<const Raw*>(at)}; }

  static __device__ Vector LoadStreaming(const T* at) {
    return {Access<kBytes>::LoadStreaming(reinterpret_cast<const Raw*>(at))};
  }

  // Loads elements that may have been written since the kernel began.
  static __device__ Vector LoadAwaited(const T* at) {
    return {Access<kBytes>::LoadAwaited(reinterpret_cast<const Raw*>(at))};
  }

  __device__ void Store(T* at) const { *reinterpret_cast<Raw*>(at) = raw; }

  __device__ void StoreStreaming(T* at) const { __stcs(reinterpret_cast<Raw*>(at), raw); }

  __device__ void Unpack(float (&values)[kWidth]) const {
    if constexpr (kBytes == sizeof(T)) {
      values[0] = Widen(std::bit_cast<T>(raw));
    } else {
      const Words words = std::bit_cast<Words>(raw);
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        if constexpr (sizeof(T) == 2) {
          WidenPair<T>(words.values[i], &values[2 * i], &values[2 * i + 1]);
        } else {
          values[i] = __uint_as_float(words.values[i]);
        }
      }
    }
  }

  static __device__ Vector Pack(const float (&values)[kWidth]) {
    if constexpr (kBytes == sizeof(T)) {
      return {std::bit_cast<Raw>(Narrow<T>(values[0]))};
    } else {
      Words words;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        if constexpr (sizeof(T) == 2) {
          words.values[i] = NarrowPair<T>(values[2 * i], values[2 * i + 1]);
        } else {
          words.values[i] = __float_as_uint(values[i]);
        }
      }
      return {std::bit_cast<Raw>(words)};
    }
  }

 private:
  static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
  struct Words {
    uint32_t values[kWords];
  };
};

}  // namespace warpcall::cuda
