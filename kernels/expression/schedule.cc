#include "kernels/expression/schedule.h"

#include <algorithm>

#include "proto/common/check.h"

namespace warpcall::expression {
namespace {

bool IsReducing(const Graph& graph, const Layout& layout, int node) {
  const Node& found = graph.nodes[static_cast<size_t>(node)];
  return IsReduction(found.op) && layout.wide[static_cast<size_t>(found.operands[0])];
}

// Returns the wide nodes that the `needed` nodes depend on, themselves included, in order.
std::vector<int> WideConeOf(const Graph& graph, const Layout& layout, std::vector<bool> needed) {
  std::vector<int> cone;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (!needed[i] || !layout.wide[i]) continue;
    cone.push_back(static_cast<int>(i));
    for (int j = 0; j < OperandCount(graph.nodes[i].op); ++j)
      needed[static_cast<size_t>(graph.nodes[i].operands[j])] = true;
  }
  std::reverse(cone.begin(), cone.end());
  return cone;
}

// The first pass in which each node can be computed.
std::vector<size_t> EarliestPasses(const Graph& graph, const Layout& layout) {
  std::vector<size_t> pass(graph.nodes.size());
  for (size_t i = 0; i < pass.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (int j = 0; j < OperandCount(node.op); ++j)
      pass[i] = std::max(pass[i], pass[static_cast<size_t>(node.operands[j])]);
    if (IsReducing(graph, layout, static_cast<int>(i))) ++pass[i];
  }
  return pass;
}

// Puts inputs, and what is computed from inputs alone, into the first pass that needs them, so that
// they need not be kept from an earlier one.
void Delay(const Graph& graph, const Layout& layout, std::vector<size_t>* pass) {
  const auto is_reducing = [&](size_t i) { return IsReducing(graph, layout, static_cast<int>(i)); };
  std::vector<size_t> needed(pass->size(), pass->back());
  for (size_t i = pass->size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool is_of_inputs = layout.wide[i] && !is_reducing(i);
    for (int j = 0; j < OperandCount(node.op); ++j) {
      const auto operand = static_cast<size_t>(node.operands[j]);
      is_of_inputs &= !layout.wide[operand] || graph.nodes[operand].op == Operator::kInput;
    }
    if (is_of_inputs) (*pass)[i] = std::max((*pass)[i], needed[i]);
    for (int j = 0; j < OperandCount(node.op); ++j) {
      size_t& first = needed[static_cast<size_t>(node.operands[j])];
      first = std::min(first, (*pass)[i] - (is_reducing(i) ? 1 : 0));
    }
  }
}

}  // namespace

Schedule ScheduleOf(const Graph& graph, const Layout& layout, Keeping keeping) {
  const size_t count = graph.nodes.size();
  WARPCALL_DCHECK(count > 0 && layout.wide.size() == count, count, layout.wide.size());
  std::vector<size_t> pass = EarliestPasses(graph, layout);
  const size_t passes = pass.back() + 1;
  if (keeping == Keeping::kRow) Delay(graph, layout, &pass);
  Schedule schedule;
  schedule.passes.resize(passes);
  for (size_t i = 0; i < count; ++i) {
    const int node = static_cast<int>(i);
    if (IsReducing(graph, layout, node)) {
      schedule.passes[pass[i] - 1].reductions.push_back(node);
    } else if (!layout.wide[i]) {
      schedule.passes[pass[i]].narrow.push_back(node);
    } else if (keeping == Keeping::kRow) {
      schedule.passes[pass[i]].wide.push_back(node);
    }
  }
  if (keeping == Keeping::kRow) return schedule;
  for (Pass& each : schedule.passes) {
    std::vector<bool> needed(count);
    for (const int reduction : each.reductions)
      needed[static_cast<size_t>(graph.nodes[static_cast<size_t>(reduction)].operands[0])] = true;
    if (&each == &schedule.passes.back()) needed.back() = true;
    each.wide = WideConeOf(graph, layout, std::move(needed));
  }
  return schedule;
}

}  // namespace warpcall::expression
