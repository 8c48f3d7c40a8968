// An expression as the chain of elementary operations that it stands for, one after the other: what
// a program without fusion runs.
#pragma once

#include <vector>

#include "kernels/expression/graph.h"
#include "kernels/op.h"

namespace warpcall::expression {

// Returns `graph` with gelu, silu and sigmoid written out in sums, products, exp, tanh and erf.
Graph ElementaryGraph(const Graph& graph);

// One operation of a chain: a graph of its own over tensors that are there.
struct ChainStep {
  int node = 0;  // the elementary graph's node that the step computes
  Graph graph;
  std::vector<int> operands;  // nodes: the graph's inputs
};

// Returns the steps for all nodes but inputs and constants, in order. A step includes the nodes
// that it needs and that are computed from constants alone.
std::vector<ChainStep> ChainOf(const Graph& graph);

// Returns the shape of each node's tensor after broadcasting and reductions; {1} for constants.
// REQUIRES: the inputs can be broadcast, and are as many as the graph's.
std::vector<Dims> NodeDims(const Graph& graph, absl::Span<const TensorSpec> inputs);

}  // namespace warpcall::expression
