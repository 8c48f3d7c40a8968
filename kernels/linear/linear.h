// linear: y[..., n] = activation(x[..., k] x weight[n, k]^T + bias[n]). Sums are float32 (float64
// in the reference), as matmul's, whose kernels these are; bias and activation are applied to them
// before the one rounding. k = 0 gives activation(bias).
//
// NaN and infinity propagate as matmul has it. relu(NaN) is NaN; gelu(-infinity) is 0, as gelu's.
#pragma once

#include <vector>

#include "kernels/matmul/matmul_epilogue.h"
#include "kernels/op.h"

namespace warpcall {

const Op& LinearOp();

// The implementations for the CPU device, in order of preference.
std::vector<Implementation> LinearCpuRows();

// The implementations for CUDA devices, in order of preference.
std::vector<Implementation> LinearCudaRows();

namespace linear {

// Indices of inputs, and indices into Problem::attributes.
inline constexpr int kX = 0;
inline constexpr int kWeight = 1;
inline constexpr int kBias = 2;
inline constexpr int kActivation = 0;
inline constexpr int kPrecision = 1;

matmul::Activation ActivationOf(const Problem& problem);

// The product alone: matmul of the rows of x with the weight transposed.
Problem ProductOf(const Problem& problem);

// The exact definition, which the reference implementation rounds.
extern const Definition kDefinition;
double Activate(matmul::Activation activation, double value);

// The cases on which the implementations are checked.
OpCases Cases();

// Writes activation(bias) to the outputs of a problem whose k is 0, on the host.
void FinishWithoutSums(const Problem& problem, const Operands& operands);

// The implementations, one per file.
Implementation SimdTiledRow();
Implementation OnednnRow();
Implementation CublasltRow();
Implementation DotPerOutputRow();
Implementation WgmmaTiledRow();
Implementation MmaTiledRow();
Implementation RegisterTiledRow();
Implementation TritonLinearRow();
Implementation ChainOfKernelsRow();
Implementation ChainOfLoopsRow();
Implementation Float64Row();

}  // namespace linear
}  // namespace warpcall
