// gelu: y = x Phi(x), with Phi the standard normal distribution function ("none") or its tanh
// approximation:
//   none  0.5 x (1 + erf(x / sqrt(2)))
//   tanh  0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
// gelu(+inf) = +inf; gelu(-inf) = 0, of either sign, the limit (the formula's -inf x 0 would be
// NaN); NaN stays.
#pragma once

#include <string>
#include <vector>

#include "kernels/op.h"

namespace warpcall {

const Op& GeluOp();

// The implementations for the CPU device, in order of preference.
std::vector<Implementation> GeluCpuRows();

// The implementations for CUDA devices, in order of preference.
std::vector<Implementation> GeluCudaRows();

namespace gelu {

// Index into Problem::attributes.
inline constexpr int kApproximate = 0;

bool UsesTanh(const Problem& problem);

// The exact definition, which the reference implementation rounds.
extern const Definition kDefinition;

// One element of kDefinition, in float64.
double Exactly(double x, bool tanh);

// The cases on which the implementations are checked.
OpCases Cases();
// Error bound in float32 of gelu of `x`, whose exact value is `y`.
double ErrorAt(double x, double y);

// The implementations, one per file.
Implementation SimdFusedRow();
Implementation OnednnEltwiseRow();
Implementation VectorizedRow();
Implementation TritonGeluRow();
Implementation CompiledGeluRow();
Implementation CudnnPointwiseRow();
Implementation ChainOfKernelsRow();
Implementation ChainOfLoopsRow();
Implementation Float64Row();

// The variants of implementations that have a kernel for each of the two formulas.
std::vector<std::string> FormNames(DataType type);
// The variant for the problem's formula; INVALID_ARGUMENT if the context asks for the other.
absl::StatusOr<int> FormToPlan(const Problem& problem, const PlanContext& context);

}  // namespace gelu
}  // namespace warpcall
