#include "server/engine/prediction.h"

#include <algorithm>

#include "kernels/common/saturate.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

// Returns true if operand `number` of the graph, inputs first, does not travel.
using StaysThere = absl::FunctionRef<bool(size_t number)>;

// A step's work without the bytes that are on the device before it, or stay there.
TimedWork TimedWorkOf(const StepGraph& graph, size_t number, size_t input_count, StaysThere stays) {
  const Step& step = graph.steps()[number];
  TimedWork timed{graph.WorkOf(number)};
  const auto leave_out = [&timed](const TensorSpec& spec) {
    timed.has_residents = true;
    timed.work.bytes = std::max<int64_t>(timed.work.bytes - static_cast<int64_t>(spec.bytes()), 0);
  };
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const GraphValue& value = step.inputs[i];
    if (!value.is_input || stays(static_cast<size_t>(value.index)))
      leave_out(step.problem.inputs[i]);
  }
  const int output = graph.OutputOf(static_cast<int>(number));
  if (output < 0 || stays(input_count + static_cast<size_t>(output)))
    leave_out(step.problem.outputs[0]);
  return timed;
}

TimedWork TimedWorkOf(const Job& job, size_t number) {
  return TimedWorkOf(*job.problem.graph, number, job.problem.inputs.size(),
                     [&job](size_t operand) { return job.IsResident(operand); });
}

ServiceHistory::Prediction PredictSteps(const ServiceHistory& history, const StepGraph& graph,
                                        size_t input_count, StaysThere stays) {
  ServiceHistory::Prediction sum = {0, 0, 0, ServiceHistory::Basis::kMeasured};
  for (size_t i = 0; i < graph.steps().size(); ++i) {
    WARPCALL_CHECK(graph.steps()[i].row != nullptr, i);
    const ServiceHistory::Prediction step =
        history.Predict(graph.steps()[i].row->id, TimedWorkOf(graph, i, input_count, stays));
    sum.ns = SaturatingAdd(sum.ns, step.ns);
    sum.ns_at_most = SaturatingAdd(sum.ns_at_most, step.ns_at_most);
    sum.ns_at_least = SaturatingAdd(sum.ns_at_least, step.ns_at_least);
    sum.basis = std::min(sum.basis, step.basis);
  }
  return sum;
}

}  // namespace

ServiceHistory::Prediction Predict(const ServiceHistory& history, const Job& job) {
  if (job.problem.graph == nullptr) return history.Predict(job.row->id, job.timed_work());
  return PredictSteps(history, *job.problem.graph, job.problem.inputs.size(),
                      [&job](size_t operand) { return job.IsResident(operand); });
}

void RecordRun(const Job& job, ServiceHistory* history) {
  const RequestTrace& trace = *job.trace;
  const int64_t ns = trace.copy_in_ns + trace.device_ns;
  if (job.problem.graph == nullptr) return history->Record(job.row->id, job.timed_work(), ns);
  const size_t steps = job.problem.graph->steps().size();
  for (size_t i = 0; i < steps; ++i) {
    const TimedWork timed = TimedWorkOf(job, i);
    // A step all of whose operands travel is the whole graph, and takes as long as its Execute.
    if (!timed.has_residents && steps == 1)
      history->Record(job.problem.graph->steps()[i].row->id, timed, ns);
    else if (timed.has_residents && i < trace.graph->step_ns.size())
      history->Record(job.problem.graph->steps()[i].row->id, timed, trace.graph->step_ns[i]);
  }
}

void LowerPrediction(const Job& job, ServiceHistory* history) {
  if (job.problem.graph == nullptr) return history->LowerPrediction(job.row->id, job.timed_work());
  for (size_t i = 0; i < job.problem.graph->steps().size(); ++i)
    history->LowerPrediction(job.problem.graph->steps()[i].row->id, TimedWorkOf(job, i));
}

ServiceHistory::Prediction Predict(const ServiceHistory& history, const StepGraph& graph) {
  // No operand of the graph stays, whatever its number.
  return PredictSteps(history, graph, 0, [](size_t) { return false; });
}

}  // namespace warpcall
