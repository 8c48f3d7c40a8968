#include "kernels/expression/elementary.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "absl/algorithm/container.h"
#include "kernels/expression/layout.h"
#include "proto/common/check.h"

namespace warpcall::expression {
namespace {

class Expansion {
 public:
  explicit Expansion(const Graph& graph) : graph_(graph) {}

  Graph Expand() && {
    for (const Node& node : graph_.nodes) places_.push_back(Place(node));
    return std::move(build_).Finish(places_.back(), graph_.inputs, graph_.operations);
  }

 private:
  int Operand(const Node& node, int i) const {
    return node.operands[i] < 0 ? -1 : places_[static_cast<size_t>(node.operands[i])];
  }

  int Place(const Node& node) {
    const int a = Operand(node, 0);
    switch (node.op) {
      case Operator::kInput:
        return build_.Input(node.index);
      case Operator::kConstant:
        return build_.Constant(node.value);
      case Operator::kPow:
        return build_.Pow(a, node.value);
      case Operator::kDropout:
        return build_.Dropout(a, node.value, node.index);
      case Operator::kRowInverseRms:
        return build_.InverseRms(a, node.value);
      case Operator::kGelu:
        return Gelu(a);
      case Operator::kGeluErf:
        return GeluErf(a);
      case Operator::kSilu:
        return Silu(a);
      case Operator::kSigmoid:
        return build_.Apply(Operator::kDivide, build_.Constant(1), OnePlusExp(a));
      default:
        return build_.Apply(node.op, a, Operand(node, 1), Operand(node, 2));
    }
  }

  int Times(double factor, int a) {
    return build_.Apply(Operator::kMultiply, build_.Constant(factor), a);
  }
  int Product(int a, int b) { return build_.Apply(Operator::kMultiply, a, b); }
  int OnePlus(int a) { return build_.Apply(Operator::kAdd, build_.Constant(1), a); }
  // Below `least` the function is as good as 0, and minus infinity times 0 would have no limit.
  int AtLeast(double least, int a) {
    return build_.Apply(Operator::kMax, a, build_.Constant(least));
  }

  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  int Gelu(int x) {
    const int bounded = AtLeast(-32, x);
    const int cube = Product(Product(bounded, bounded), bounded);
    const int inner = build_.Apply(Operator::kAdd, bounded, Times(0.044715, cube));
    const int tanh =
        build_.Apply(Operator::kTanh, Times(std::sqrt(2 * std::numbers::inv_pi), inner));
    return Product(Times(0.5, bounded), OnePlus(tanh));
  }

  // 0.5 x (1 + erf(x / sqrt(2)))
  int GeluErf(int x) {
    const int bounded = AtLeast(-32, x);
    const int erf = build_.Apply(Operator::kErf, Times(1 / std::numbers::sqrt2, bounded));
    return Product(Times(0.5, bounded), OnePlus(erf));
  }

  int OnePlusExp(int a) {
    return OnePlus(build_.Apply(Operator::kExp, build_.Apply(Operator::kNegate, a)));
  }

  // x / (1 + exp(-x))
  int Silu(int x) {
    const int bounded = AtLeast(-128, x);
    return build_.Apply(Operator::kDivide, bounded, OnePlusExp(bounded));
  }

  const Graph& graph_;
  GraphBuilder build_;
  std::vector<int> places_;
};

// Makes the graph of one step.
class StepBuilder {
 public:
  StepBuilder(const Graph& graph, const std::vector<bool>& constant)
      : graph_(graph), constant_(constant), copies_(graph.nodes.size(), kNone) {}

  ChainStep Build(int node) && {
    const int result = Copy(node);
    const int inputs = static_cast<int>(operands_.size());
    return {.node = node,
            .graph = std::move(build_).Finish(result, inputs, 1),
            .operands = std::move(operands_)};
  }

 private:
  int Operand(int node) {
    if (constant_[static_cast<size_t>(node)]) return CopyOnce(node);
    const auto known = absl::c_find(operands_, node);
    const int index = static_cast<int>(known - operands_.begin());
    if (known == operands_.end()) operands_.push_back(node);
    return build_.Input(index);
  }

  // Copies a node with several users only once. Nested reductions of numbers, each of which uses
  // the next one several times, would otherwise take time exponential in their depth.
  int CopyOnce(int id) {
    int& copy = copies_[static_cast<size_t>(id)];
    if (copy == kNone) copy = Copy(id);
    return copy;
  }

  int Copy(int id) {
    const Node& node = graph_.nodes[static_cast<size_t>(id)];
    if (node.op == Operator::kConstant) return build_.Constant(node.value);
    int operands[kOperandsMax] = {-1, -1, -1};
    for (int i = 0; i < OperandCount(node.op); ++i) operands[i] = Operand(node.operands[i]);
    if (node.op == Operator::kPow) return build_.Pow(operands[0], node.value);
    if (node.op == Operator::kDropout) return build_.Dropout(operands[0], node.value, node.index);
    return build_.Apply(node.op, operands[0], operands[1], operands[2]);
  }

  static constexpr int kNone = -1;

  const Graph& graph_;
  const std::vector<bool>& constant_;
  std::vector<int> copies_;  // by node of graph_
  GraphBuilder build_;
  std::vector<int> operands_;
};

}  // namespace

Graph ElementaryGraph(const Graph& graph) { return Expansion(graph).Expand(); }

std::vector<ChainStep> ChainOf(const Graph& graph) {
  std::vector<bool> constant;  // nothing of an input in it
  std::vector<ChainStep> steps;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    bool is_constant = node.op != Operator::kInput;
    for (int j = 0; j < OperandCount(node.op); ++j)
      is_constant &= constant[static_cast<size_t>(node.operands[j])];
    constant.push_back(is_constant);
    if (is_constant || node.op == Operator::kInput) continue;
    steps.push_back(StepBuilder(graph, constant).Build(static_cast<int>(i)));
  }
  return steps;
}

std::vector<Dims> NodeDims(const Graph& graph, absl::Span<const TensorSpec> inputs) {
  WARPCALL_DCHECK(static_cast<int>(inputs.size()) == graph.inputs, inputs.size(), graph.inputs);
  WARPCALL_DCHECK(Broadcast(inputs).ok());
  std::vector<Dims> dims;
  for (const Node& node : graph.nodes) {
    if (node.op == Operator::kInput) {
      dims.push_back(inputs[static_cast<size_t>(node.index)].dims);
      continue;
    }
    std::vector<TensorSpec> operands = {{DataType::kFloat32, {1}}};
    for (int i = 0; i < OperandCount(node.op); ++i)
      operands.push_back({DataType::kFloat32, dims[static_cast<size_t>(node.operands[i])]});
    dims.push_back(*Broadcast(operands));
    if (IsReduction(node.op)) dims.back().back() = 1;
  }
  return dims;
}

}  // namespace warpcall::expression
