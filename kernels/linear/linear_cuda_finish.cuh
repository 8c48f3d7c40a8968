// linear's epilogue on a GPU: bias and activation, applied to sums before they are rounded.
#pragma once

#include <cstdint>

#include "kernels/cuda/vector.cuh"
#include "kernels/gelu/gelu_cuda_forms.cuh"
#include "kernels/matmul/matmul_epilogue.h"

namespace warpcall::linear {

// The activation is a number, not a template parameter: all threads of a launch take the same
// branch, and a tiled kernel is compiled once, not four times.
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

// Adds the bias of each sum's column, then activates. Replaces matmul::NoFinish.
template <typename T>
struct Finish {
  const T* bias;  // from the column of From on
  matmul::Activation activation;

  template <int kCount>
  struct BiasOfColumns {
    float values[kCount];
  };

  __device__ Finish From(int64_t column) const { return {bias + column, activation}; }

  // The bias of the first kCount columns; 0 from column `columns` on.
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
