// What linear does to sums on a GPU before they are rounded.
#pragma once

#include <cstdint>

#include "kernels/cuda/vector.cuh"
#include "kernels/gelu/gelu_cuda_forms.cuh"
#include "kernels/matmul/matmul_epilogue.h"

namespace warpcall::linear {

// The activation is a number, not a template's parameter: all threads of a launch go the same way,
// and a tiled kernel is compiled once, not four times.
template <int kCount>
__device__ void Activate(matmul::Activation activation, float (&values)[kCount]) {
  switch (activation) {
    case matmul::Activation::kNone:
      return;
    case matmul::Activation::kRelu:  // NaN stays
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = gelu::MaxOrNan(values[i], 0.0f);
      return;
    case matmul::Activation::kGelu:
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = gelu::TanhForm::Apply(values[i]);
      return;
    case matmul::Activation::kGeluErf:
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = gelu::ErfForm::Apply(values[i]);
      return;
  }
}

// The bias of each sum's column, then the activation. In place of matmul::NoFinish.
template <typename T>
struct Finish {
  const T* bias;  // from some column on
  matmul::Activation activation;

  template <int kCount>
  struct BiasOfColumns {
    float values[kCount];
  };

  __device__ Finish From(int64_t column) const { return {bias + column, activation}; }

  // Of the first kCount columns; 0 beyond the `columns` that there are.
  template <int kCount>
  __device__ BiasOfColumns<kCount> BiasOf(int64_t columns) const {
    BiasOfColumns<kCount> of;
#pragma unroll
    for (int i = 0; i < kCount; ++i) of.values[i] = i < columns ? cuda::Widen(bias[i]) : 0.0f;
    return of;
  }

  template <int kCount>
  __device__ void Apply(const BiasOfColumns<kCount>& of, float (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += of.values[i];
    Activate(activation, values);
  }
};

}  // namespace warpcall::linear
