// fused: any chain of elementwise operations, reductions of rows and broadcasts, as the attribute
// "expression" says it in the language of kernels/expression/parser.h, over inputs x0, x1 and so
// on, whose shapes broadcast as NumPy's do. The output has the broadcast shape of all inputs.
// Arithmetic is float32 and the result is rounded once; each step is as
// kernels/expression/arithmetic.cc says, dropout's mask as kernels/expression/mask.h says.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/expression/graph.h"
#include "kernels/expression/layout.h"
#include "kernels/op.h"

namespace warpcall {

const Op& FusedOp();

// The rows of the CPU device, in order of preference.
std::vector<Implementation> FusedCpuRows();

// The rows of CUDA devices, in order of preference.
std::vector<Implementation> FusedCudaRows();

namespace fused {

// Indices into Problem::attributes.
inline constexpr int kExpression = 0;
inline constexpr int kSeed = 1;

// A valid problem, parsed and laid out.
struct Program {
  expression::Graph graph;
  expression::Layout layout;
  int64_t seed = 0;
};

// REQUIRES: infer_outputs accepted the problem. Takes the time of parsing.
Program ProgramOf(const Problem& problem);

// The truth, which the reference row rounds.
extern const Definition kDefinition;
// Returns the error bound of each element of slice `index`; infinite where any result is right.
std::vector<double> ErrorsOf(const Problem& problem, const Operands& inputs, int64_t index);

// Returns the cases that the implementations are checked on.
OpCases Cases();

// The implementations, one per file.
Implementation BlocksInCacheRow();
Implementation ChainOfLoopsRow();
Implementation Float64Row();
Implementation CompiledExpressionRow();
Implementation ChainOfKernelsRow();

}  // namespace fused
}  // namespace warpcall
