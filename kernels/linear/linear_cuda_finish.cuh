// linear's epilogue on a GPU: bias and activation, applied to sums before they are rounded.
#pragma once

#include <cstdint>

#include "kernels/cuda/vector.cuh"
#include "kernels/gelu/gelu_cuda_forms.cuh"
#include "kernels/matmul/matmul_epilogue.h"

namespace warpcall::linear {

template <matmul::Activation kActivation, int kCount>
__device__ void Activate(float (&values)[kCount]) {
  if constexpr (kActivation == matmul::Activation::kRelu) {  // NaN stays
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = gelu::MaxOrNan(values[i], 0.0f);
  } else if constexpr (kActivation == matmul::Activation::kGelu) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = gelu::TanhForm::Apply(values[i]);
  } else if constexpr (kActivation == matmul::Activation::kGeluErf) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = gelu::ErfForm::Apply(values[i]);
  }
}

// Adds the bias of each sum's column, then activates. Replaces matmul::NoFinish.
//
// The activation is a number, not a template parameter: all threads of a launch take the same
// branch, and a tiled kernel is compiled once, not four times.
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

  // This epilogue, where the compiler knows the activation.
  template <matmul::Activation kActivation>
  struct Known {
    template <int kCount>
    using BiasOfColumns = Finish::BiasOfColumns<kCount>;

    template <int kCount>
    __device__ void Apply(const BiasOfColumns<kCount>& of, float (&values)[kCount]) const {
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] += of.values[i];
      Activate<kActivation>(values);
    }
  };

  // Runs body(known) with this epilogue as Known: one branch for all that body finishes.
  template <typename Body>
  __device__ void Visit(const Body& body) const {
    switch (activation) {
      case matmul::Activation::kNone:
        return body(Known<matmul::Activation::kNone>{});
      case matmul::Activation::kRelu:
        return body(Known<matmul::Activation::kRelu>{});
      case matmul::Activation::kGelu:
        return body(Known<matmul::Activation::kGelu>{});
      case matmul::Activation::kGeluErf:
        return body(Known<matmul::Activation::kGeluErf>{});
    }
  }

  template <int kCount>
  __device__ void Apply(const BiasOfColumns<kCount>& of, float (&values)[kCount]) const {
    Visit([&](const auto& known) { known.Apply(of, values); });
  }
};

}  // namespace warpcall::linear
