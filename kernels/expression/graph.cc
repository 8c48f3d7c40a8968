#include "kernels/expression/graph.h"

#include <bit>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "kernels/expression/arithmetic.h"
#include "proto/common/check.h"

namespace warpcall::expression {
namespace {

struct OperatorInfo {
  const char* name;
  int operands;
};

// In the order of Operator.
constexpr OperatorInfo kOperators[] = {
    {"input", 0},
    {"constant", 0},
    {"negate", 1},
    {"abs", 1},
    {"exp", 1},
    {"exp2", 1},
    {"log", 1},
    {"sqrt", 1},
    {"rsqrt", 1},
    {"tanh", 1},
    {"erf", 1},
    {"sigmoid", 1},
    {"relu", 1},
    {"gelu", 1},
    {"gelu_erf", 1},
    {"silu", 1},
    {"pow", 1},
    {"dropout", 1},
    {"add", 2},
    {"subtract", 2},
    {"multiply", 2},
    {"divide", 2},
    {"min", 2},
    {"max", 2},
    {"less", 2},
    {"less_equal", 2},
    {"greater", 2},
    {"greater_equal", 2},
    {"equal", 2},
    {"select", 3},
    {"row_sum", 1},
    {"row_mean", 1},
    {"row_max", 1},
    {"row_min", 1},
    {"row_inverse_rms", 1},
};
static_assert(std::size(kOperators) == static_cast<size_t>(Operator::kRowInverseRms) + 1);

// Constants differ if their bits do: -0 is not 0.
struct Key {
  Node node;

  bool operator==(const Key& other) const {
    return node.op == other.node.op && absl::c_equal(node.operands, other.node.operands) &&
           node.index == other.node.index &&
           std::bit_cast<uint64_t>(node.value) == std::bit_cast<uint64_t>(other.node.value);
  }

  template <typename Hash>
  friend Hash AbslHashValue(Hash state, const Key& key) {
    const Node& hashed = key.node;
    return Hash::combine(std::move(state), hashed.op, hashed.operands[0], hashed.operands[1],
                         hashed.operands[2], hashed.index, std::bit_cast<uint64_t>(hashed.value));
  }
};

}  // namespace

const char* OperatorName(Operator op) { return kOperators[static_cast<int>(op)].name; }

int OperandCount(Operator op) { return kOperators[static_cast<int>(op)].operands; }

bool IsReduction(Operator op) { return op >= Operator::kRowSum; }

bool IsComparison(Operator op) { return op >= Operator::kLess && op <= Operator::kEqual; }

bool Graph::HasReductions() const {
  return absl::c_any_of(nodes, [](const Node& node) { return IsReduction(node.op); });
}

struct GraphBuilder::Nodes {
  std::vector<Node> list;
  absl::flat_hash_map<Key, int> known;
};

GraphBuilder::GraphBuilder() : nodes_(std::make_unique<Nodes>()) {}

GraphBuilder::~GraphBuilder() = default;

int GraphBuilder::Add(const Node& node) {
  for (int i = 0; i < OperandCount(node.op); ++i)
    WARPCALL_DCHECK(static_cast<size_t>(node.operands[i]) < nodes_->list.size(), node.operands[i],
                    OperatorName(node.op));
  const auto [found, added] =
      nodes_->known.try_emplace(Key{node}, static_cast<int>(nodes_->list.size()));
  if (added) nodes_->list.push_back(node);
  return found->second;
}

int GraphBuilder::Input(int index) { return Add({.op = Operator::kInput, .index = index}); }

int GraphBuilder::Constant(double value) {
  return Add({.op = Operator::kConstant, .value = value});
}

int GraphBuilder::Apply(Operator op, int a, int b, int c) {
  const Node node = {.op = op, .operands = {a, b, c}};
  double values[kOperandsMax] = {};
  if (IsReduction(op) || !ComputeOperands(node, values)) return Add(node);
  const double value = Compute(node, values);
  if (!IsComparison(op)) return Constant(value);
  // A comparison stays one, of numbers that rounding to float32 does not bring together.
  return Add({.op = Operator::kEqual, .operands = {Constant(value), Constant(1), -1}});
}

bool GraphBuilder::ComputeOperands(const Node& node, double* values) const {
  for (int i = 0; i < OperandCount(node.op); ++i) {
    const Node& operand = nodes_->list[static_cast<size_t>(node.operands[i])];
    double of_comparison[kOperandsMax] = {};
    if (operand.op == Operator::kConstant) {
      values[i] = operand.value;
    } else if (IsComparison(operand.op) && ComputeOperands(operand, of_comparison)) {
      values[i] = Compute(operand, of_comparison);
    } else {
      return false;
    }
  }
  return true;
}

int GraphBuilder::Pow(int a, double exponent) {
  if (const double* const value = ConstantOf(a); value != nullptr) {
    const Node node = {.op = Operator::kPow, .operands = {a, -1, -1}, .value = exponent};
    return Constant(Compute(node, value));
  }
  // As products these cost less, and neither overflow nor underflow before the power does.
  if (exponent == 1) return a;
  if (exponent == 2) return Apply(Operator::kMultiply, a, a);
  if (exponent == 3) return Apply(Operator::kMultiply, Apply(Operator::kMultiply, a, a), a);
  return Add({.op = Operator::kPow, .operands = {a, -1, -1}, .value = exponent});
}

int GraphBuilder::Dropout(int a, double probability, int call) {
  return Add(
      {.op = Operator::kDropout, .operands = {a, -1, -1}, .value = probability, .index = call});
}

int GraphBuilder::Softmax(int a) {
  const int distance = Apply(Operator::kSubtract, a, Apply(Operator::kRowMax, a));
  const int power = Apply(Operator::kExp, distance);
  return Apply(Operator::kDivide, power, Apply(Operator::kRowSum, power));
}

int GraphBuilder::Variance(int a) {
  const int distance = Apply(Operator::kSubtract, a, Apply(Operator::kRowMean, a));
  return Apply(Operator::kRowMean, Apply(Operator::kMultiply, distance, distance));
}

int GraphBuilder::InverseRms(int a, double epsilon) {
  return Add({.op = Operator::kRowInverseRms, .operands = {a, -1, -1}, .value = epsilon});
}

const double* GraphBuilder::ConstantOf(int node) const {
  WARPCALL_DCHECK(static_cast<size_t>(node) < nodes_->list.size(), node, nodes_->list.size());
  const Node& found = nodes_->list[static_cast<size_t>(node)];
  return found.op == Operator::kConstant ? &found.value : nullptr;
}

bool GraphBuilder::IsCondition(int node) const {
  return IsComparison(nodes_->list[static_cast<size_t>(node)].op);
}

Graph GraphBuilder::Finish(int result, int inputs, int operations) && {
  std::vector<Node>& list = nodes_->list;
  WARPCALL_DCHECK(static_cast<size_t>(result) < list.size(), result, list.size());
  std::vector<bool> needed(list.size());
  needed[static_cast<size_t>(result)] = true;
  for (size_t i = list.size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (int j = 0; j < OperandCount(list[i].op); ++j)
      needed[static_cast<size_t>(list[i].operands[j])] = true;
  }
  Graph graph = {.nodes = {}, .inputs = inputs, .operations = operations};
  std::vector<int> place(list.size());
  for (size_t i = 0; i <= static_cast<size_t>(result); ++i) {
    if (!needed[i]) continue;
    place[i] = static_cast<int>(graph.nodes.size());
    Node& node = graph.nodes.emplace_back(list[i]);
    for (int j = 0; j < OperandCount(node.op); ++j)
      node.operands[j] = place[static_cast<size_t>(node.operands[j])];
    if (node.op == Operator::kConstant || node.op == Operator::kPow)
      node.value = static_cast<double>(static_cast<float>(node.value));
  }
  return graph;
}

}  // namespace warpcall::expression
