// An expression as a list of operations on tensors, each on the results of earlier ones. Equal
// operations share a node. Compound functions are broken down, and an operation without inputs
// among its operands is computed while the graph is built: see GraphBuilder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace warpcall::expression {

enum class Operator : uint8_t {
  kInput,     // input number `index`
  kConstant,  // `value`, exact in float32
  // Elementwise, on one operand.
  kNegate,
  kAbs,
  kExp,
  kExp2,
  kLog,
  kSqrt,
  kRsqrt,
  kTanh,
  kErf,
  kSigmoid,
  kRelu,
  kGelu,     // by tanh
  kGeluErf,  // by erf
  kSilu,
  kPow,  // to the power `value`, which a float32 holds
  // Some elements become 0, the others are multiplied by 1 / (1 - value):
  // kernels/expression/mask.h. `index` is its place among the calls of the text.
  kDropout,
  // Elementwise, on two operands.
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMin,
  kMax,
  // 1 or 0.
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  // The second operand where the first is not 0, else the third.
  kSelect,
  // Over the last dimension, which becomes 1.
  kRowSum,
  kRowMean,
  kRowMax,
  kRowMin,
  // 1 / sqrt(mean of squares + `value`), in float64, rounded once: the divisor of norms. Expression
  // text cannot name this operator, and only generated CUDA computes it.
  kRowInverseRms,
};

inline constexpr int kOperandsMax = 3;

// Takes no more than the limits of expressions: see parser.h.
struct Node {
  Operator op = Operator::kInput;
  int operands[kOperandsMax] = {-1, -1, -1};  // nodes before this one; -1: none
  double value = 0;
  int index = 0;

  bool operator==(const Node& other) const = default;
};

struct Graph {
  std::vector<Node> nodes;  // the last one is the result; each of the others is an operand
  int inputs = 0;           // that the expression names: 0 to inputs - 1
  int operations = 0;       // as written

  const Node& result() const { return nodes.back(); }
  bool HasReductions() const;
};

const char* OperatorName(Operator op);
int OperandCount(Operator op);
bool IsReduction(Operator op);
bool IsComparison(Operator op);

// Makes the nodes of a graph from the operands up.
class GraphBuilder {
 public:
  GraphBuilder();
  ~GraphBuilder();

  int Input(int index);
  int Constant(double value);
  // Returns the existing node of an equal operation on equal operands, if any. Operations on
  // constants alone are computed in float64; a comparison of them becomes 1 == 1 or 0 == 1. The
  // operands of kAdd and kMultiply keep their order.
  int Apply(Operator op, int a, int b = -1, int c = -1);
  int Pow(int a, double exponent);
  int Dropout(int a, double probability, int call);
  // exp(a - max) / sum along the row.
  int Softmax(int a);
  // The mean of the squared distances from the mean.
  int Variance(int a);
  int InverseRms(int a, double epsilon);

  // Null unless `node` is a constant.
  const double* ConstantOf(int node) const;
  bool IsCondition(int node) const;

  // The graph of what `result` needs; constants are rounded to float32.
  Graph Finish(int result, int inputs, int operations) &&;

 private:
  struct Nodes;
  int Add(const Node& node);
  // Computes the operands of `node`. False unless each is a constant or a comparison of constants.
  bool ComputeOperands(const Node& node, double* values) const;

  std::unique_ptr<Nodes> nodes_;
};

}  // namespace warpcall::expression
