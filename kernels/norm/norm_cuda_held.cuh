// The part of a row that a thread holds in registers, as floats: kVectors vectors of kWidth
// elements, those of the threads that share the row side by side.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/norm/norm_cuda_math.cuh"
#include "kernels/norm/norm_cuda_select.h"

namespace warpcall::norm {

template <typename T, int kWidthIn, int kVectors, int kThreads>
class Held {
 public:
  static constexpr int kWidth = kWidthIn;
  using VectorOf = cuda::Vector<T, kWidth>;

  struct Fetched {
    VectorOf vectors[kVectors];
  };

  // Loads alone, to be issued before any is used. Past the end of the row nothing is read.
  // `first` is the thread's first vector, of `vectors` in the row.
  template <bool kPastL1>
  static __device__ Fetched Fetch(const T* x, int first, int vectors) {
    WARPCALL_DEVICE_CHECK(first >= 0 && vectors <= kVectors * kThreads);
    Fetched fetched;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int v = first + i * kThreads;
      if (v < vectors) {
        fetched.vectors[i] =
            kPastL1 ? VectorOf::LoadAwaited(x + v * kWidth) : VectorOf::Load(x + v * kWidth);
      }
    }
    return fetched;
  }

  float values[kVectors][kWidth];

  __device__ void Take(const Fetched& fetched, int first, int vectors) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (first + i * kThreads < vectors) {
        fetched.vectors[i].Unpack(values[i]);
      } else {
#pragma unroll
        for (int e = 0; e < kWidth; ++e) values[i][e] = 0;
      }
    }
  }

  __device__ void Multiply(float factor) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) values[i][e] *= factor;
    }
  }

  // The largest |value| that is a number; NaN comes back with the sums.
  __device__ float Largest() const {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) largest = fmaxf(largest, fabsf(values[i][e]));
    }
    return largest;
  }

  __device__ float Sum() const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) sum += values[i][e];
    }
    return sum;
  }

  __device__ Sums SumsAround(float mean, int first, int vectors) const {
    Sums sums = {0, 0};
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (first + i * kThreads >= vectors) continue;
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const float distance = values[i][e] - mean;
        sums.distances += distance;
        sums.squares = fmaf(distance, distance, sums.squares);
      }
    }
    return sums;
  }

  __device__ float Squares() const {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) squares = fmaf(values[i][e], values[i][e], squares);
    }
    return squares;
  }

  // Past the end of the row are zeros.
  __device__ DoubleSums SumsInDouble() const {
    DoubleSums sums = {0, 0};
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const double value = values[i][e];
        sums.values += value;
        sums.squares = fma(value, value, sums.squares);
      }
    }
    return sums;
  }

  __device__ Part PartOf(int first, int vectors, bool centered) const {
    Part part = {0, 0, 0};
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (first + i * kThreads < vectors) part.count += kWidth;
#pragma unroll
      for (int e = 0; e < kWidth; ++e) sum += values[i][e];
    }
    if (!centered || part.count == 0) return {part.count, 0, Squares()};
    const float mean = sum / part.count;
    const Moments moments = Corrected(mean, SumsAround(mean, first, vectors), part.count);
    return {part.count, moments.mean, moments.squares};
  }

  // The results' memory and weights, from the first vector that the threads hold on.
  struct Target {
    const T* weight;
    const T* bias;  // null: none
    T* y;
    int first;
    int vectors;
  };

  // Loads weight and bias as each vector is stored: registers hold one row, not three. `kPastL1`:
  // stores leave L2 first, as Fetch's loads pass L1.
  template <bool kPastL1>
  __device__ void Store(const Target& to, const Normalizer& normalizer) const {
    StoreWith<kPastL1>(
        to, normalizer, [&](int i) { return At(to.weight, to.first, i); },
        [&](int i) { return At(to.bias, to.first, i); });
  }

  // Stores with weight and bias that several rows share.
  __device__ void Store(const Target& to, const Normalizer& normalizer, const Fetched& weight,
                        const Fetched& bias) const {
    StoreWith</*kPastL1=*/true>(
        to, normalizer, [&](int i) { return weight.vectors[i]; },
        [&](int i) { return bias.vectors[i]; });
  }

 private:
  static __device__ VectorOf At(const T* x, int first, int i) {
    return VectorOf::Load(x + (first + i * kThreads) * kWidth);
  }

  // y = (value - mean) x reciprocal x weight + bias. The last two in one instruction: the product
  // alone may overflow where the sum does not.
  template <bool kPastL1, typename Weight, typename Bias>
  __device__ void StoreWith(const Target& to, const Normalizer& normalizer, const Weight& weight_of,
                            const Bias& bias_of) const {
    const auto [mean, reciprocal] = normalizer;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int v = to.first + i * kThreads;
      if (v >= to.vectors) continue;
      float weight[kWidth];
      weight_of(i).Unpack(weight);
      float result[kWidth];
      if (to.bias != nullptr) {
        float bias[kWidth];
        bias_of(i).Unpack(bias);
#pragma unroll
        for (int e = 0; e < kWidth; ++e)
          result[e] = fmaf((values[i][e] - mean) * reciprocal, weight[e], bias[e]);
      } else {
#pragma unroll
        for (int e = 0; e < kWidth; ++e) result[e] = values[i][e] * reciprocal * weight[e];
      }
      if constexpr (kPastL1) {
        VectorOf::Pack(result).StoreStreaming(to.y + v * kWidth);
      } else {
        VectorOf::Pack(result).Store(to.y + v * kWidth);
      }
    }
  }
};

}  // namespace warpcall::norm
