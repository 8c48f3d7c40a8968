// gelu: y = x Phi(x), with Phi the standard normal distribution function ("none") or its tanh
// approximation:
//   none  0.5 x (1 + erf(x / sqrt(2)))
//   tanh  0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
// gelu(+inf) = +inf; gelu(-inf) = 0, of either sign, the limit (the formula's -inf x 0 would be
// NaN); NaN stays.
#pragma once

#include <vector>

#include "kernels/op.h"

namespace warpcall {

const Op& GeluOp();

// The rows of the CPU device, in order of preference.
std::vector<Implementation> GeluCpuRows();

// The rows of CUDA devices, in order of preference.
std::vector<Implementation> GeluCudaRows();

namespace gelu {

// Index into Problem::attributes.
inline constexpr int kApproximate = 0;

bool UsesTanh(const Problem& problem);

// The truth, which the reference row rounds.
extern const Definition kDefinition;

// What the rows are checked on.
OpCases Cases();

// The variants of rows with code for each form, which the attribute decides: "none" and "tanh".
extern const Variants kFormVariants;

// The rows, one per file.
Implementation SimdFusedRow();
Implementation OnednnEltwiseRow();
Implementation VectorizedRow();
Implementation CudnnPointwiseRow();
Implementation ChainOfKernelsRow();
Implementation ChainOfLoopsRow();
Implementation Float64Row();

}  // namespace gelu
}  // namespace warpcall
