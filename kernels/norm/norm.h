// Shared by layernorm and rmsnorm. A row is the last dimension: n adjacent elements of x. Each row
// is brought to a mean square of 1, around its mean or around 0, and then weighed:
//   layernorm  y = (x - mean) / sqrt(mean((x - mean)^2) + epsilon) x weight + bias
//   rmsnorm    y = x / sqrt(mean(x^2) + epsilon) x weight
// All implementations serve both: a problem with a bias is layernorm's.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/op.h"

namespace warpcall::norm {

// Indices of inputs, and indices into Problem::attributes.
inline constexpr int kX = 0;
inline constexpr int kWeight = 1;
inline constexpr int kBias = 2;
inline constexpr int kEpsilon = 0;

struct View {
  int64_t rows;
  int64_t n;
  double epsilon;
  bool centered;  // around the mean, and there is a bias
};
View ViewOf(const Problem& problem);

// The shape rule, the cost and the attribute of both ops.
absl::Status InferOutputs(Problem* problem);
Work WorkOf(const Problem& problem);
AttributeSpec EpsilonAttribute(double default_value);

// The exact definition, which the reference implementation rounds.
extern const Definition kDefinition;

// The cases on which the implementations are checked.
OpCases Cases(bool centered);

// The implementations, one per file. A reference rounds the definition of its own op.
Implementation SimdRowsRow();
Implementation WarpPerRowRow();
Implementation BlockPerRowRow();
Implementation TwoPassRow();
Implementation CompiledNormRow();
Implementation CudnnNormRow();
Implementation TritonLayernormRow();
Implementation TritonRmsnormRow();
Implementation ChainOfKernelsRow();
Implementation ChainOfLoopsRow();
Implementation Float64Row(const Op& op);  // layernorm or rmsnorm

}  // namespace warpcall::norm
