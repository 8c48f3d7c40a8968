#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/expression/layout.h"
#include "kernels/expression/parser.h"
#include "kernels/expression/schedule.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

using expression::Graph;
using expression::Keeping;
using expression::Node;
using expression::Operator;

// Softmax is one operation and five nodes.
constexpr size_t kNodesPerOperation = 5;
constexpr size_t kMessageMax = 400;

std::string WrongInRefusal(absl::string_view input, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInvalidArgument) return status.ToString();
  absl::string_view message = status.message();
  if (message.size() > kMessageMax) return absl::StrCat("a message of ", message.size());
  size_t column = 0;
  const size_t end = message.find(": ");
  if (!absl::ConsumePrefix(&message, "expression, column ") ||
      !absl::SimpleAtoi(message.substr(0, end - 19), &column))
    return absl::StrCat("no column: ", status.message());
  return column >= 1 && column <= input.size() + 1 ? "" : absl::StrCat("column ", column);
}

std::string WrongIn(const Graph& graph) {
  if (graph.operations > expression::kOperationsMax)
    return absl::StrCat(graph.operations, " operations");
  if (graph.inputs < 1 || graph.inputs > expression::kInputsMax)
    return absl::StrCat(graph.inputs, " inputs");
  const size_t count = graph.nodes.size();
  if (count > kNodesPerOperation * static_cast<size_t>(graph.operations) + 600)
    return absl::StrCat(count, " nodes");
  for (size_t i = 0; i < count; ++i) {
    const Node& node = graph.nodes[i];
    for (int j = 0; j < expression::OperandCount(node.op); ++j)
      if (node.operands[j] < 0 || static_cast<size_t>(node.operands[j]) >= i)
        return absl::StrCat("node ", i, " has operand ", node.operands[j]);
    if (node.op == Operator::kInput && (node.index < 0 || node.index >= graph.inputs))
      return absl::StrCat("node ", i, " is input ", node.index);
    if (expression::IsComparison(node.op) && i + 1 == count) return "the result is a comparison";
  }
  return "";
}

}  // namespace

std::string FuzzExpression(absl::string_view input) {
  const absl::StatusOr<Graph> graph = expression::Parse(input);
  if (!graph.ok()) return WrongInRefusal(input, graph.status());
  if (input.size() > expression::kCharactersMax) return "it is too long and was taken";
  const std::string wrong = WrongIn(*graph);
  if (!wrong.empty()) return wrong;
  std::vector<TensorSpec> specs;
  for (int i = 0; i < graph->inputs; ++i)
    specs.push_back({DataType::kFloat32, i % 2 == 0 ? Dims{3, 5} : Dims{3, 1}});
  const expression::Layout layout = expression::LayoutOf(*graph, specs);
  if (layout.rows * layout.columns != 15)
    return absl::StrCat(layout.rows, " rows of ", layout.columns);
  // Whatever a pass needs was computed before it, or in it.
  for (const Keeping keeping : {Keeping::kNothing, Keeping::kRow}) {
    std::vector<int> computed(graph->nodes.size(), -1);
    const expression::Schedule schedule = ScheduleOf(*graph, layout, keeping);
    for (size_t pass = 0; pass < schedule.passes.size(); ++pass) {
      const auto compute = [&](int node) {
        computed[static_cast<size_t>(node)] = static_cast<int>(pass);
        const Node& found = graph->nodes[static_cast<size_t>(node)];
        return std::all_of(
            found.operands, found.operands + expression::OperandCount(found.op), [&](int operand) {
              const auto at = static_cast<size_t>(operand);
              const bool lasts = !layout.wide[at] || keeping == Keeping::kRow;
              return lasts ? computed[at] >= 0 : computed[at] == static_cast<int>(pass);
            });
      };
      const expression::Pass& each = schedule.passes[pass];
      for (const int node : each.narrow)
        if (!compute(node)) return absl::StrCat("narrow node ", node, " comes too early");
      for (const int node : each.wide)
        if (!compute(node)) return absl::StrCat("wide node ", node, " comes too early");
      for (const int node : each.reductions)
        if (!compute(node)) return absl::StrCat("reduction ", node, " comes too early");
    }
    // A reduction is known to the pass behind the one that takes its elements.
    const Node& result = graph->nodes.back();
    const bool reduces =
        expression::IsReduction(result.op) && layout.wide[static_cast<size_t>(result.operands[0])];
    const int known = computed.back() + (reduces ? 1 : 0);
    if (computed.back() < 0 || known != static_cast<int>(schedule.passes.size()) - 1)
      return "the last pass does not know the result";
  }
  return "";
}

}  // namespace warpcall::testing
