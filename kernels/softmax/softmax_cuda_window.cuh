// A row of global memory as the aligned vectors that cover it, and the part of it that one thread
// holds as float32.
//
// Rows lie one after the other, so that a row whose length is no multiple of the vector starts
// inside one that it shares with the row before. Both read the whole vector and keep their own
// elements; each writes its own one by one. All vectors in between are read and written in one
// piece, whatever the length.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/softmax/softmax_cuda_math.cuh"
#include "kernels/softmax/softmax_cuda_select.h"

namespace warpcall::softmax {

// Elements [shift, shift + n) of `vectors` aligned vectors that begin at `start`. x and y are the
// tensor's base pointers, which are equal in all threads and so take no registers.
template <typename T>
struct Window {
  const T* x;
  T* y;
  int64_t start;
  int shift;
  int n;
  int vectors;  // that hold elements of the row; 0: nothing is read or written
  int whole;    // vectors within the tensor: all, or all but the last
};

template <typename T>
__device__ Window<T> EmptyWindow(const RowTensor<T>& tensor) {
  return {tensor.x, tensor.y, 0, 0, 0, 0, 0};
}

struct VectorRange {
  int64_t first;
  int64_t count;
};

// The `end - shift` elements from `start` + shift on. `start` counts from the tensor's first
// element and is the start of a vector.
template <int kWidth, typename T>
__device__ Window<T> WindowAt(const RowTensor<T>& tensor, int64_t start, int shift, int end) {
  WARPCALL_DEVICE_CHECK(start % kWidth == 0 && shift >= 0 && shift < kWidth && shift <= end);
  const int vectors = (end + kWidth - 1) / kWidth;
  const bool ends_inside = start + int64_t{vectors} * kWidth <= tensor.rows * tensor.n;
  return {tensor.x, tensor.y, start, shift, end - shift, vectors, vectors - (ends_inside ? 0 : 1)};
}

// Offset of a row's first element in the vector that holds it.
template <int kWidth, bool kAligned, typename T>
__device__ int ShiftOfRow(const RowTensor<T>& tensor, int64_t row) {
  return kAligned ? 0 : static_cast<int>((row * tensor.n) & (kWidth - 1));
}

// REQUIRES: n + kWidth fits an int.
template <int kWidth, bool kAligned, typename T>
__device__ Window<T> WholeRow(const RowTensor<T>& tensor, int64_t row) {
  WARPCALL_DEVICE_CHECK(row < tensor.rows && tensor.n <= INT32_MAX - kWidth);
  const int shift = ShiftOfRow<kWidth, kAligned>(tensor, row);
  return WindowAt<kWidth>(tensor, row * tensor.n - shift, shift,
                          shift + static_cast<int>(tensor.n));
}

// Vectors [first, first + count) of a row, cut at the row's end.
// REQUIRES: count x kWidth fits an int.
template <int kWidth, bool kAligned, typename T>
__device__ Window<T> PartOfRow(const RowTensor<T>& tensor, int64_t row, VectorRange range) {
  WARPCALL_DEVICE_CHECK(row < tensor.rows && range.count <= INT32_MAX / kWidth);
  const int shift = ShiftOfRow<kWidth, kAligned>(tensor, row);
  const int64_t first = range.first * kWidth;
  const int64_t last = min(shift + tensor.n, first + range.count * kWidth);
  if (first >= last) return EmptyWindow(tensor);
  return WindowAt<kWidth>(tensor, row * tensor.n - shift + first, first == 0 ? shift : 0,
                          static_cast<int>(last - first));
}

// The vectors that one of kThreads threads holds: first, first + kThreads, ... of a window.
// Elements past the window or of neighbouring rows are -infinity, and 0 after Exponentiate.
template <typename T, int kWidth, int kVectors, int kThreads, bool kAligned>
struct Held {
  using Vector = cuda::Vector<T, kWidth>;

  float value[kVectors][kWidth];

  struct Fetched {
    Vector vectors[kVectors];
  };

  // Issues the loads; Take waits for them.
  template <bool kPastL1>
  static __device__ Fetched Fetch(const Window<T>& window, int first) {
    Fetched fetched;
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      fetched.vectors[i] = FetchVector<kPastL1>(window, first + i * kThreads);
    return fetched;
  }

  __device__ void Take(const Fetched& fetched, const Window<T>& window, int first) {
    WARPCALL_DEVICE_CHECK(window.vectors <= kVectors * kThreads);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      fetched.vectors[i].Unpack(value[i]);
      if constexpr (!kAligned) KeepOwn(window, first + i * kThreads, value[i]);
    }
  }

  template <bool kPastL1>
  __device__ void Load(const Window<T>& window, int first) {
    Take(Fetch<kPastL1>(window, first), window, first);
  }

  __device__ float Max() const {
    float max = kLowest;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float part = value[i][0];
#pragma unroll
      for (int k = 1; k < kWidth; ++k) part = fmaxf(part, value[i][k]);
      max = fmaxf(max, part);
    }
    return max;
  }

  // Replaces every x by exp(x - max) and returns their sum, in two levels.
  __device__ float Exponentiate(float max) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float part = 0;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        value[i][k] = Exp(value[i][k] - max);
        part += value[i][k];
      }
      sum += part;
    }
    return sum;
  }

  // Writes value x scale.
  __device__ void Store(const Window<T>& window, int first, float scale) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int v = first + i * kThreads;
      if (v >= window.vectors) continue;
      float scaled[kWidth];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) scaled[k] = value[i][k] * scale;
      T* const y = window.y + (window.start + static_cast<int64_t>(v) * kWidth);
      if (kAligned || !IsShared(window, v)) {
        Vector::Pack(scaled).StoreStreaming(y);
      } else if constexpr (!kAligned) {
        StoreOwn(window, v, scaled, y);
      }
    }
  }

  // Reads a vector that is not wholly within the tensor: the last one of a row, or one past the
  // window, which is all -infinity.
  static __device__ Vector FetchOutside(const Window<T>& window, int v) {
    const T* const x = window.x + (window.start + static_cast<int64_t>(v) * kWidth);
    float values[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = -INFINITY;
    if (!kAligned && v < window.vectors) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (IsOwn(window, v, k)) values[k] = cuda::Widen(x[k]);
      }
    }
    return Vector::Pack(values);
  }

 private:
  // Returns true if element k of vector v belongs to the row.
  static __device__ bool IsOwn(const Window<T>& window, int v, int k) {
    return static_cast<unsigned>(v * kWidth + k - window.shift) < static_cast<unsigned>(window.n);
  }

  // Returns true if vector v may hold elements of another row.
  static __device__ bool IsShared(const Window<T>& window, int v) {
    return v == 0 || v == window.vectors - 1;
  }

  template <bool kPastL1>
  static __device__ Vector FetchVector(const Window<T>& window, int v) {
    const T* const x = window.x + (window.start + static_cast<int64_t>(v) * kWidth);
    if (v < (kAligned ? window.vectors : window.whole))
      return kPastL1 ? Vector::LoadAwaited(x) : Vector::Load(x);
    return FetchOutside(window, v);
  }

  static __device__ void StoreOwn(const Window<T>& window, int v, const float (&values)[kWidth],
                                  T* y) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (IsOwn(window, v, k)) y[k] = cuda::Narrow<T>(values[k]);
    }
  }

  static __device__ void KeepOwn(const Window<T>& window, int v, float (&values)[kWidth]) {
    if (!IsShared(window, v)) return;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = IsOwn(window, v, k) ? values[k] : -INFINITY;
  }
};

}  // namespace warpcall::softmax
