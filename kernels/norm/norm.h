// What layernorm and rmsnorm share. A row is the last dimension: n elements of x, one behind the
// other, that are brought to a mean square of 1, around their mean or around 0, and then weighed:
//   layernorm  y = (x - mean) / sqrt(mean((x - mean)^2) + epsilon) x weight + bias
//   rmsnorm    y = x / sqrt(mean(x^2) + epsilon) x weight
// All rows of the menu serve both: a problem with a bias is layernorm's.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/op.h"

namespace warpcall::norm {

// Of inputs, and into Problem::attributes.
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

// The shape rule and the cost of both ops, and their attribute.
absl::Status InferOutputs(Problem* problem);
Work WorkOf(const Problem& problem);
AttributeSpec EpsilonAttribute(double default_value);

// The truth, which the reference row rounds.
extern const Definition kDefinition;

// What the rows are checked on.
OpCases Cases(bool centered);

// The rows, one per file. A reference rounds the definition of its own op.
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
Implementation Float64Row(absl::Status (*launch)(const Problem&, const Operands&,
                                                 const LaunchContext&));

}  // namespace warpcall::norm
