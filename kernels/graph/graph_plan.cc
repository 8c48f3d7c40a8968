#include "kernels/graph/graph_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/graph/step_graph.h"
#include "kernels/plan_cache.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

constexpr char kStepPayload[] = "warpcall/step";

// The memory of each step: the graph's operands, and intermediates in `arena`.
Operands OperandsOf(const StepGraph& graph, int number, const Operands& whole, char* arena) {
  const auto result = [&](int step) -> void* {
    const int output = graph.OutputOf(step);
    if (output >= 0) return whole.outputs[static_cast<size_t>(output)];
    return arena == nullptr ? nullptr : arena + graph.OffsetOf(step);
  };
  Operands operands;
  for (const GraphValue& value : graph.steps()[static_cast<size_t>(number)].inputs)
    operands.inputs.push_back(value.is_input ? whole.inputs[static_cast<size_t>(value.index)]
                                             : result(value.index));
  operands.outputs.push_back(result(number));
  return operands;
}

// Inputs of a step that the step before it does not make. That step waited for all before it, and
// for the copies of the graph's inputs, before it let this one begin.
uint32_t SettledInputs(const StepGraph& graph, int number) {
  if (number == 0) return 0;
  uint32_t settled = 0;
  const auto& inputs = graph.steps()[static_cast<size_t>(number)].inputs;
  for (size_t i = 0; i < std::min<size_t>(inputs.size(), 32); ++i)
    if (inputs[i].is_input || inputs[i].index < number - 1) settled |= 1U << i;
  return settled;
}

class GraphPlan final : public Plan {
 public:
  GraphPlan(const Traits& traits, std::shared_ptr<const StepGraph> graph,
            std::vector<PlanPtr> steps)
      : Plan(traits), graph_(std::move(graph)), steps_(std::move(steps)) {}

  absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
    StepClock* const clock = context.step_clock;
    LaunchContext own = context;
    own.step_clock = nullptr;
    auto* const arena = static_cast<char*>(context.workspace);
    if (arena != nullptr) own.workspace = arena + graph_->arena_bytes();
    if (clock != nullptr) RETURN_IF_ERROR(clock->Begin(static_cast<int>(steps_.size())));
    for (size_t i = 0; i < steps_.size() && !IsSet(context.stop); ++i) {
      if (clock != nullptr) RETURN_IF_ERROR(clock->Stamp());
      const int step = static_cast<int>(i);
      own.settled_inputs = SettledInputs(*graph_, step);
      if (absl::Status status = steps_[i]->Enqueue(OperandsOf(*graph_, step, operands, arena), own);
          !status.ok())
        return AtStep(step, std::move(status));
      if (clock != nullptr) RETURN_IF_ERROR(clock->Stamp());
    }
    return clock == nullptr ? absl::OkStatus() : clock->End();
  }

  std::vector<PlanPtr> Steps() const override { return steps_; }

 private:
  absl::StatusOr<LaunchShape> AskShape() const override {
    LaunchShape sum;
    for (const PlanPtr& step : steps_) {
      ASSIGN_OR_RETURN(const LaunchShape shape, step->shape());
      sum.gpu_kernels += shape.gpu_kernels;
    }
    return sum;
  }

  const std::shared_ptr<const StepGraph> graph_;
  const std::vector<PlanPtr> steps_;
};

// Makes the plans of a graph's steps.
class StepPlanner {
 public:
  StepPlanner(const Problem& problem, const PlanContext& context)
      : graph_(*problem.graph), context_(context) {}

  absl::StatusOr<std::vector<PlanPtr>> Plan() {
    // Rows that try candidates find in their inputs what the steps before make.
    const bool tries =
        context_.tryout != nullptr && absl::c_any_of(graph_.steps(), [](const Step& step) {
          return step.row->implementation.slow_to_plan;
        });
    if (tries) {
      ASSIGN_OR_RETURN(void* const arena, context_.tryout->workspace(graph_.arena_bytes()));
      arena_ = static_cast<char*>(arena);
    }
    std::vector<PlanPtr> plans;
    for (size_t i = 0; i < graph_.steps().size(); ++i) {
      const int step = static_cast<int>(i);
      absl::StatusOr<PlanPtr> plan = PlanStep(step, tries);
      if (!plan.ok()) return AtStep(step, std::move(plan).status());
      plans.push_back(*std::move(plan));
      if (tries) RETURN_IF_ERROR(Run(step, *plans.back()));
    }
    return plans;
  }

 private:
  absl::StatusOr<PlanPtr> PlanStep(int number, bool tries) {
    const Step& step = graph_.steps()[static_cast<size_t>(number)];
    WARPCALL_CHECK(step.row != nullptr, number);
    const auto make = [&]() -> absl::StatusOr<PlanPtr> {
      PlanContext own = context_;
      own.tryout = nullptr;
      if (!tries) return step.row->implementation.plan(step.problem, own);
      const Operands operands = OperandsOf(graph_, number, *context_.tryout->operands, arena_);
      const Tryout tryout = {context_.tryout->stream, &operands, context_.tryout->workspace};
      own.tryout = &tryout;
      return step.row->implementation.plan(step.problem, own);
    };
    return context_.plans == nullptr ? make()
                                     : context_.plans->GetOrMake(*step.row, step.problem, make);
  }

  absl::Status Run(int number, const ::warpcall::Plan& plan) {
    LaunchContext launch;
    launch.stream = context_.tryout->stream;
    launch.stop = context_.stop;
    ASSIGN_OR_RETURN(launch.workspace, context_.tryout->workspace(plan.traits().workspace_bytes));
    return plan.Enqueue(OperandsOf(graph_, number, *context_.tryout->operands, arena_), launch);
  }

  const StepGraph& graph_;
  const PlanContext& context_;
  char* arena_ = nullptr;
};

const Op& GraphOp() {
  static const Op op = {
      .name = "graph",
      .summary = "steps that run one after the other, each a kernel",
      .input_names = {},
      .attributes = {},
      .infer_outputs = nullptr,
      .work = [](const Problem& problem) { return problem.graph->work(); },
  };
  return op;
}

}  // namespace

absl::Status AtStep(int step, absl::Status status) {
  status.SetPayload(kStepPayload, absl::Cord(absl::StrCat(step)));
  return status;
}

std::optional<int> StepOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kStepPayload);
  int step;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &step)) return std::nullopt;
  return step;
}

absl::StatusOr<PlanPtr> PlanGraph(const Problem& problem, const PlanContext& context) {
  WARPCALL_CHECK(problem.graph != nullptr);
  std::vector<PlanPtr> steps;
  ASSIGN_OR_RETURN(steps, StepPlanner(problem, context).Plan());
  Plan::Traits traits;
  traits.may_be_replayed = !problem.graph->times_steps();
  size_t workspace_bytes = 0;
  for (const PlanPtr& step : steps) {
    workspace_bytes = std::max(workspace_bytes, step->traits().workspace_bytes);
    traits.may_be_replayed &= step->traits().may_be_replayed;
    traits.is_compiled |= step->traits().is_compiled;
  }
  traits.workspace_bytes = problem.graph->arena_bytes() + workspace_bytes;
  return std::make_shared<const GraphPlan>(traits, problem.graph, std::move(steps));
}

void AddGraphKernel(absl::Span<const DeviceKind> kinds, Registry* registry) {
  std::vector<Implementation> rows;
  for (const DeviceKind kind : kinds)
    rows.push_back({.name = kind == DeviceKind::kCpu ? "steps_cpu" : "steps_cuda",
                    .family = Family::kGraph,
                    .device_kind = kind,
                    .summary = "each step by a row of its own",
                    .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
                    .supports = SupportsAll,
                    .plan = PlanGraph});
  registry->Add(GraphOp(), rows);
}

const Kernel& GraphKernel(const Registry& registry) {
  const absl::Span<const Kernel> kernels = registry.kernels();
  const auto found =
      absl::c_find_if(kernels, [](const Kernel& kernel) { return kernel.op == &GraphOp(); });
  WARPCALL_CHECK(found != kernels.end());
  return *found;
}

}  // namespace warpcall
