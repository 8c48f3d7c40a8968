// The unfused chain: each elementary operation of the expression is a kernel of its own over
// float32 arrays in memory, generated as the fused one is; inputs of 16 bits are widened first, and
// the result is rounded last.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kernels/common/saturate.h"
#include "kernels/compiled/compiler.h"
#include "kernels/expression/cuda_plan.h"
#include "kernels/expression/elementary.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/fused_cuda_convert.h"
#include "proto/common/status_macros.h"

namespace warpcall::fused {
namespace {

using expression::ChainStep;
using expression::CudaLaunch;
using expression::Graph;
using expression::Operator;

// The memory of a tensor.
struct Place {
  enum class Kind : uint8_t { kInput, kWorkspace, kOutput };
  Kind kind = Kind::kWorkspace;
  size_t at = 0;  // an input's number, or bytes from the workspace's begin
};

// Allocates parts of the workspace, and reuses those no longer needed.
class Arena {
 public:
  size_t Take(size_t bytes) {
    std::vector<size_t>& free = free_[bytes];
    if (free.empty()) {
      const size_t at = bytes_;
      bytes_ = static_cast<size_t>(
          SaturatingAdd(static_cast<int64_t>(bytes_), static_cast<int64_t>(bytes)));
      return at;
    }
    const size_t at = free.back();
    free.pop_back();
    return at;
  }
  void GiveBack(size_t at, size_t bytes) { free_[bytes].push_back(at); }
  size_t bytes() const { return bytes_; }

 private:
  absl::flat_hash_map<size_t, std::vector<size_t>> free_;
  size_t bytes_ = 0;
};

struct Step {
  CudaLaunch launch;
  std::vector<Place> inputs;
  Place output;
};

struct Widened {
  size_t input = 0;
  int64_t elements = 0;
  Place to;
};

// All that is launched, in order.
struct Chain {
  DataType type = DataType::kFloat32;
  std::vector<Widened> widened;
  std::vector<Step> steps;
  int64_t rounded = 0;  // elements; 0: the last step writes the output
  size_t workspace_bytes = 0;

  int gpu_kernels() const {
    return static_cast<int>(widened.size() + steps.size()) + (rounded > 0 ? 1 : 0);
  }
};

class ChainBuilder {
 public:
  ChainBuilder(const Problem& problem, const PlanContext& context)
      : problem_(problem),
        context_(context),
        program_(ProgramOf(problem)),
        graph_(expression::ElementaryGraph(program_.graph)),
        plan_(expression::ChainOf(graph_)),
        dims_(expression::NodeDims(graph_, problem.inputs)),
        places_(graph_.nodes.size()),
        last_use_(graph_.nodes.size(), plan_.size()) {
    for (size_t i = 0; i < plan_.size(); ++i)
      for (const int operand : plan_[i].operands) last_use_[Index(operand)] = i;
  }

  absl::StatusOr<Chain> Build() && {
    chain_.type = problem_.outputs[0].data_type;
    PlaceInputs();
    for (size_t i = 0; i < plan_.size(); ++i) RETURN_IF_ERROR(AddStep(i));
    const bool is_done = !plan_.empty() && places_.back().kind == Place::Kind::kOutput;
    const bool is_whole = dims_.back() == problem_.outputs[0].dims;
    if (!is_done && (plan_.empty() || !is_whole)) RETURN_IF_ERROR(AddCopy());
    if (chain_.type != DataType::kFloat32) chain_.rounded = problem_.outputs[0].elements();
    chain_.workspace_bytes = arena_.bytes();
    return std::move(chain_);
  }

 private:
  static size_t Index(int node) { return static_cast<size_t>(node); }
  TensorSpec SpecOf(int node) const { return {DataType::kFloat32, dims_[Index(node)]}; }
  // Parts of the workspace begin as operands do.
  static size_t BytesOf(const TensorSpec& spec) {
    constexpr auto kStep = static_cast<int64_t>(kOperandAlignmentBytes / sizeof(float));
    return SaturatingBytes(SaturatingMultiply(CeilDivide(spec.elements(), kStep), kStep),
                           sizeof(float));
  }
  Place TakeFor(const TensorSpec& spec) {
    return {Place::Kind::kWorkspace, arena_.Take(BytesOf(spec))};
  }

  void PlaceInputs() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].op != Operator::kInput) continue;
      const auto input = static_cast<size_t>(graph_.nodes[i].index);
      places_[i] = {Place::Kind::kInput, input};
      if (chain_.type == DataType::kFloat32) continue;
      const TensorSpec spec = SpecOf(static_cast<int>(i));
      places_[i] = TakeFor(spec);
      chain_.widened.push_back({input, spec.elements(), places_[i]});
    }
  }

  absl::Status AddStep(size_t number) {
    const ChainStep& step = plan_[number];
    const TensorSpec result = SpecOf(step.node);
    const bool is_output = number + 1 == plan_.size() && chain_.type == DataType::kFloat32 &&
                           result.dims == problem_.outputs[0].dims;
    std::vector<TensorSpec> operands;
    std::vector<Place> inputs;
    for (const int operand : step.operands) {
      operands.push_back(SpecOf(operand));
      inputs.push_back(places_[Index(operand)]);
    }
    Place& place = places_[Index(step.node)];
    place = is_output ? Place{Place::Kind::kOutput, 0} : TakeFor(result);
    RETURN_IF_ERROR(Compile(step.graph, operands, {{}, std::move(inputs), place},
                            IsReduction(graph_.nodes[Index(step.node)].op)));
    for (const int operand : step.operands)
      if (places_[Index(operand)].kind == Place::Kind::kWorkspace &&
          last_use_[Index(operand)] == number)
        arena_.GiveBack(places_[Index(operand)].at, BytesOf(SpecOf(operand)));
    return absl::OkStatus();
  }

  // The result in the output's shape, which an input of that shape that nothing reads gives.
  absl::Status AddCopy() {
    expression::GraphBuilder build;
    const int result_node = build.Input(0);
    const Graph copy = std::move(build).Finish(result_node, 2, 0);
    const TensorSpec whole = {DataType::kFloat32, problem_.outputs[0].dims};
    const std::vector<Place> inputs(2, places_.back());
    const TensorSpec result = {DataType::kFloat32, dims_.back()};
    places_.back() =
        chain_.type == DataType::kFloat32 ? Place{Place::Kind::kOutput, 0} : TakeFor(whole);
    return Compile(copy, {result, whole}, {{}, inputs, places_.back()}, false);
  }

  absl::Status Compile(const Graph& graph, const std::vector<TensorSpec>& operands, Step step,
                       bool narrow_output) {
    const expression::Layout layout = expression::LayoutOf(graph, operands);
    ASSIGN_OR_RETURN(step.launch, expression::CompileLaunch({.graph = graph,
                                                             .layout = layout,
                                                             .data_type = DataType::kFloat32,
                                                             .seed = program_.seed,
                                                             .narrow_output = narrow_output},
                                                            context_));
    chain_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  const Problem& problem_;
  const PlanContext& context_;
  const Program program_;
  const Graph graph_;
  const std::vector<ChainStep> plan_;
  const std::vector<Dims> dims_;
  std::vector<Place> places_;     // by node
  std::vector<size_t> last_use_;  // by node: the last step that uses it
  Arena arena_;
  Chain chain_;
};

// Finds the address of each place in a launch.
class Located {
 public:
  Located(const Operands& operands, const LaunchContext& context)
      : operands_(operands), context_(context) {}

  void* operator()(const Place& place) const {
    switch (place.kind) {
      case Place::Kind::kInput:
        return const_cast<void*>(operands_.inputs[place.at]);
      case Place::Kind::kWorkspace:
        return static_cast<char*>(context_.workspace) + place.at;
      case Place::Kind::kOutput:
        break;
    }
    return operands_.outputs[0];
  }

 private:
  const Operands& operands_;
  const LaunchContext& context_;
};

absl::Status RunChain(const Chain& chain, const Operands& operands, const LaunchContext& context) {
  const Located located(operands, context);
  for (const Widened& input : chain.widened)
    RETURN_IF_ERROR(WidenOnGpu({operands.inputs[input.input], located(input.to), input.elements},
                               chain.type, context));
  for (const Step& step : chain.steps) {
    const void* inputs[expression::kOperandsMax];
    size_t count = 0;
    for (const Place& place : step.inputs) inputs[count++] = located(place);
    RETURN_IF_ERROR(expression::Enqueue(step.launch, absl::MakeConstSpan(inputs, count),
                                        located(step.output), context));
  }
  if (chain.rounded == 0) return absl::OkStatus();
  return RoundOnGpu({located(chain.steps.back().output), operands.outputs[0], chain.rounded},
                    chain.type, context);
}

absl::Status Supports(const Problem&, const DeviceProperties& device) {
  return compiled::CheckCompiles(device);
}

absl::StatusOr<PlanPtr> MakeChainPlan(const Problem& problem, const PlanContext& context) {
  if (problem.outputs[0].elements() == 0) return PlanNothing();
  ASSIGN_OR_RETURN(Chain built, ChainBuilder(problem, context).Build());
  const auto chain = std::make_shared<const Chain>(std::move(built));
  return cuda::NewKernelPlan(
      {.workspace_bytes = chain->workspace_bytes, .may_be_replayed = true, .is_compiled = true},
      expression::LaunchedBy(chain->steps.back().launch, chain->gpu_kernels()), context,
      [chain](const Operands& operands, const LaunchContext& where) {
        return RunChain(*chain, operands, where);
      });
}

}  // namespace

Implementation ChainOfKernelsRow() {
  return {.name = "chain_of_kernels",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCuda,
          .summary = "one elementary operation of the expression per kernel",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .slow_to_plan = true,
          .plan = MakeChainPlan};
}

}  // namespace warpcall::fused
