#include "kernels/fused/fused.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "kernels/expression/parser.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

using expression::Graph;
using expression::Operator;

const std::string& TextOf(const Problem& problem) {
  return std::get<std::string>(problem.attributes[fused::kExpression]);
}

absl::Status InferOutputs(Problem* problem) {
  ASSIGN_OR_RETURN(const Graph graph, expression::Parse(TextOf(*problem)));
  const size_t given = problem->inputs.size();
  if (given != static_cast<size_t>(graph.inputs)) {
    return absl::InvalidArgumentError(absl::StrCat("the expression names ", graph.inputs,
                                                   graph.inputs == 1 ? " input" : " inputs",
                                                   ", x0 to x", graph.inputs - 1, ", got ", given));
  }
  const DataType type = problem->inputs[0].data_type;
  for (size_t i = 1; i < given; ++i) {
    if (problem->inputs[i].data_type == type) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " (x", i, ") is ", DataTypeName(problem->inputs[i].data_type),
                     " and input 0 ", "(x0) ", DataTypeName(type), "; all must have one type"));
  }
  ASSIGN_OR_RETURN(Dims dims, expression::Broadcast(problem->inputs));
  problem->outputs.push_back({type, std::move(dims)});
  return absl::OkStatus();
}

// Elementary operations of a node's element, tanh, erf and exp counted as one.
int64_t OperationsOf(Operator op) {
  switch (op) {
    case Operator::kInput:
    case Operator::kConstant:
      return 0;
    case Operator::kGelu:
      return 9;
    case Operator::kGeluErf:
      return 5;
    case Operator::kSigmoid:
    case Operator::kSilu:
      return 4;
    default:
      return 1;
  }
}

Work WorkOf(const Problem& problem) {
  const fused::Program program = fused::ProgramOf(problem);
  Work work = {.bytes = static_cast<int64_t>(problem.outputs[0].bytes()), .flops = 0};
  for (const TensorSpec& input : problem.inputs)
    work.bytes = SaturatingAdd(work.bytes, static_cast<int64_t>(input.bytes()));
  const auto& nodes = program.graph.nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const size_t counted =
        expression::IsReduction(nodes[i].op) ? static_cast<size_t>(nodes[i].operands[0]) : i;
    work.flops = SaturatingAdd(work.flops, SaturatingMultiply(program.layout.elements[counted],
                                                              OperationsOf(nodes[i].op)));
  }
  return work;
}

// Returns true if the problem has dropout, which depends on the elements' places in the whole.
bool CountsElements(const Problem& problem) {
  return TextOf(problem).find("dropout") != std::string::npos;
}

}  // namespace

const Op& FusedOp() {
  static const Op* const op = new Op{
      .name = "fused",
      .summary = "any chain of elementwise operations, row reductions and broadcasts in one pass",
      .input_names = {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"},
      .attributes = {{.name = "expression",
                      .summary =
                          "expression over x0 to x7, for example \"gelu(x0 + x1) / max(x0)\"",
                      .default_value = std::string(),
                      .allowed_values = {},
                      .required = true},
                     {.name = "seed",
                      .summary = "seed of dropout",
                      .default_value = int64_t{0},
                      .allowed_values = {}}},
      .infer_outputs = InferOutputs,
      .work = WorkOf,
      .independence = Independence::kBroadcastRows,
      .is_one_piece = CountsElements,
      .is_expressible = IsAlwaysExpressible,
      .definition = &fused::kDefinition,
      .cases = fused::Cases,
      .inputs_min = 1};
  return *op;
}

fused::Program fused::ProgramOf(const Problem& problem) {
  absl::StatusOr<Graph> graph = expression::Parse(TextOf(problem));
  WARPCALL_CHECK(graph.ok(), TextOf(problem));
  Program program = {.graph = *std::move(graph),
                     .layout = {},
                     .seed = std::get<int64_t>(problem.attributes[kSeed])};
  program.layout = expression::LayoutOf(program.graph, problem.inputs);
  return program;
}

}  // namespace warpcall
