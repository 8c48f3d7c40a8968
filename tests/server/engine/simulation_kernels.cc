// What requests run: one kernel, or a graph of some.
#include <algorithm>
#include <cstring>

#include "absl/algorithm/container.h"
#include "tests/server/engine/simulation_world.h"
#include "tests/server/nanoseconds.h"

namespace warpcall::testing {
namespace {

constexpr int64_t kStepsMax = 5;

TensorSpec Floats(int64_t bytes) { return {DataType::kFloat32, {bytes / 4}}; }

// The first of a kind of device: the one with the rate, and, behind the kernels', that of graphs.
const Row* FirstRow(DeviceKind kind, bool of_graphs) {
  const bool is_cuda = kind == DeviceKind::kCuda;
  return &SimulatedRows().rows()[static_cast<size_t>(of_graphs ? 4 + is_cuda : 2 * is_cuda)];
}

}  // namespace

void Simulation::MakeProblem(Request* request) {
  Problem& problem = request->problem;
  const auto add = [](auto* specs, size_t sent, const ResidentsOracle::Content* stays) {
    if (stays == nullptr || sent > 0) specs->push_back(Floats(static_cast<int64_t>(sent)));
    if (stays != nullptr) specs->push_back(Floats(stays->bytes));
  };
  add(&problem.inputs, request->input_bytes,
      request->stays_in == nullptr ? nullptr : request->stays_in->content);
  add(&problem.outputs, request->output_bytes, request->stays_out);
  if (request->is_graph) {
    const Request* const repeats = request->repeats;
    const bool fits = repeats != nullptr && repeats->problem.inputs == problem.inputs &&
                      repeats->problem.outputs == problem.outputs;
    problem.graph = fits ? repeats->problem.graph : DrawGraph(problem);
  }
  if (request->stays_out != nullptr)
    request->stays_out->mark = request->MarkOf(request->kernels() - 1);
}

// Its last step makes the last output.
std::shared_ptr<const StepGraph> Simulation::DrawGraph(const Problem& operands) {
  const auto inputs = static_cast<int64_t>(operands.inputs.size());
  const auto outputs = static_cast<int64_t>(operands.outputs.size());
  const auto more = [&] { return random_.Below(kStepsMax + 1 - outputs); };
  const int64_t count = outputs + std::min(more(), more());
  std::vector<int> makers = {static_cast<int>(count) - 1};
  if (outputs > 1) makers.insert(makers.begin(), static_cast<int>(random_.Below(count - 1)));
  std::vector<Step> steps;
  for (int64_t i = 0; i < count; ++i) {
    Step step = {SimulatedRows().kernels()[0].op, FirstRow(kind_, false), {}, {}};
    if (!warms_up_ && random_.OneIn(6)) ++step.row;
    for (int64_t left = 1 + static_cast<int64_t>(random_.OneIn(2)); left > 0; --left) {
      const auto from = static_cast<int>(random_.Below(inputs + i));
      const bool is_input = from < inputs;
      const GraphValue value = {is_input, is_input ? from : from - static_cast<int>(inputs)};
      const auto at = static_cast<size_t>(value.index);
      step.inputs.push_back(value);
      step.problem.inputs.push_back(is_input ? operands.inputs[at] : steps[at].problem.outputs[0]);
    }
    const auto maker = absl::c_find(makers, i);
    step.problem.outputs = {maker == makers.end()
                                ? Floats(1024 * random_.Below(5))
                                : operands.outputs[static_cast<size_t>(maker - makers.begin())]};
    steps.push_back(std::move(step));
  }
  return std::make_shared<const StepGraph>(std::move(steps), std::move(makers), false);
}

const Row* Simulation::DrawRow(const Request& request) {
  const Row* const first = FirstRow(kind_, request.is_graph);
  return request.is_graph || warms_up_ || request.HasResidents() ? first : first + random_.Below(2);
}

bool Simulation::Choose(Request* request, Job* job) {
  const Kernel& kernel = SimulatedRows().kernels()[0];
  const StepGraph* const graph = job->problem.graph.get();
  std::vector<StepQuestion> steps;
  for (size_t i = 0; graph != nullptr && i < graph->steps().size(); ++i)
    steps.push_back({&kernel, absl::StrCat(i), graph->steps()[i].row->implementation.name});
  const Kernel& asked = graph == nullptr ? kernel : GraphKernel(SimulatedRows());
  absl::StatusOr<Candidate> choice =
      Chooser(&engine_->choices(), {&asked, "", "", nullptr, nullptr, steps})
          .Next(absl::MakeConstSpan(&job->problem, 1));
  bool any_works = false;
  for (size_t i = 0; i < parts_.size(); ++i) any_works |= !devices_[i].broken;
  if (choice.ok() != any_works) oracle_.Fail(absl::StrCat("Choose: ", choice.status().ToString()));
  if (!choice.ok()) return false;
  if (graph != nullptr && (*choice->graph != *graph || choice->row != job->row))
    oracle_.Fail("a graph gets other rows than its steps name");
  job->device = request->device = choice->device;
  job->load = std::move(choice->load);
  return true;
}

ServiceHistory::Prediction Simulation::Predict(const Job& job) const {
  const ServiceHistory& history = *engine_->choices().history;
  const StepGraph* const graph = job.problem.graph.get();
  if (graph == nullptr) return history.Predict(job.row->id, job.timed_work());
  ServiceHistory::Prediction sum = {};
  for (size_t i = 0; i < graph->steps().size(); ++i) {
    const Step& step = graph->steps()[i];
    TimedWork timed{{0, step.op->work(step.problem).flops}};
    const auto add = [&timed](bool travels, const TensorSpec& spec) {
      if (travels) timed.work.bytes += static_cast<int64_t>(spec.bytes());
      timed.has_residents |= !travels;
    };
    for (size_t k = 0; k < step.inputs.size(); ++k)
      add(step.inputs[k].is_input && !job.IsResident(static_cast<size_t>(step.inputs[k].index)),
          step.problem.inputs[k]);
    const int output = graph->OutputOf(static_cast<int>(i));
    add(output >= 0 && !job.IsResident(job.problem.inputs.size() + static_cast<size_t>(output)),
        step.problem.outputs[0]);
    const ServiceHistory::Prediction added = history.Predict(step.row->id, timed);
    sum.ns += added.ns;
    sum.ns_at_least += added.ns_at_least;
  }
  return sum;
}

int Simulation::NumberOf(const Problem& problem) {
  return problems_.try_emplace(problem, static_cast<int>(problems_.size())).first->second;
}

void Simulation::FindSlowPlans(Request* request, const Row& row) {
  if (row.implementation.slow_to_plan) request->slow_plans = {NumberOf(request->problem)};
  if (request->is_graph)
    for (const Step& step : request->problem.graph->steps()) {
      if (!step.row->implementation.slow_to_plan) continue;
      if (request->slow_plans.empty()) request->slow_plans = {NumberOf(request->problem)};
      request->slow_plans.push_back(NumberOf(step.problem));
    }
  if (!request->slow_plans.empty())
    request->to_prepare = {devices_[request->device].restarts, request->slow_plans[0]};
}

absl::Status Simulation::Prepare(const Problem& problem) {
  Request* const request = running_;
  oracle_.Prepares(*request);
  const StepGraph* const graph = request->problem.graph.get();
  if (graph != nullptr &&
      (request->tries >= request->kernels() || graph->steps()[request->tries].problem != problem))
    oracle_.Fail(
        absl::StrCat("request ", request->key.id, " plans a step before earlier ones ran"));
  if (oracle_.IsPrepared(*request)) return absl::OkStatus();
  Say("  request ", request->key.id, " is prepared");
  now_ns_ += random_.Of<int64_t>({0, kMillisecond, 200 * kMillisecond});
  const std::set<std::pair<int, int>> planned_for = {{request->device, request->slow_plans[0]},
                                                     {request->device, NumberOf(problem)}};
  planning_.insert(planned_for.begin(), planned_for.end());
  Interleave();
  for (const auto& planned : planned_for) planning_.erase(planned);
  request->preparing_failed = random_.OneIn(4);
  return request->preparing_failed ? absl::InternalError("it cannot be prepared")
                                   : absl::OkStatus();
}

void Simulation::Launch(int row, const Operands& operands, const LaunchContext& context) {
  auto* const device = static_cast<FakeDevice::Control*>(context.stream);
  if (device->records_now)
    return device->Launch([this, row, operands] {
      running_->enqueued = true;
      RunKernel(row, operands);
    });
  Request& request = *running_;
  // Nothing has happened since the graph looked.
  if (request.is_graph && request.enqueued) oracle_.Looked(request, false);
  RunKernel(row, operands);
  if (!request.enqueued) return;
  if (request.looks) {
    request.saw_stop = IsSet(context.stop);
    oracle_.Looked(request, request.saw_stop);
  }
  if (request.is_complete()) return;
  now_ns_ += request.run_ns / 8;
  Interleave();
}

// A graph whose plan is being made tries its steps.
void Simulation::RunKernel(int row, const Operands& operands) {
  Request& request = *running_;
  const StepGraph* const graph = request.problem.graph.get();
  const size_t at = request.enqueued ? request.launches++ : request.tries++;
  if (at >= request.kernels() || !(request.enqueued || request.is_graph))
    return oracle_.Fail(absl::StrCat("request ", request.key.id, " runs a kernel too many"));
  if (row != (graph == nullptr ? request.job->row : graph->steps()[at].row)->id)
    oracle_.Fail(absl::StrCat("request ", request.key.id, " runs another row"));
  const Problem& problem = graph == nullptr ? request.problem : graph->steps()[at].problem;
  const SimulatedDevice::Memory& memory = devices_[request.device].memory;
  bool is_foreign = memory.IsForeign(operands.outputs[0], problem.outputs[0].bytes());
  for (size_t i = 0; i < operands.inputs.size(); ++i)
    is_foreign |= memory.IsForeign(operands.inputs[i], problem.inputs[i].bytes());
  if (is_foreign)
    return oracle_.Fail(absl::StrCat("request ", request.key.id, " runs on memory of others"));
  // First, so that an input shows which lies where the output does.
  const uint64_t mark = request.enqueued ? request.MarkOf(at) : ~request.MarkOf(at);
  const size_t bytes = problem.outputs[0].bytes();
  for (size_t to = 0; to < bytes; to += kMarkStep)
    std::memcpy(static_cast<char*>(operands.outputs[0]) + to, &mark, sizeof(mark));
  for (size_t i = 0; i < operands.inputs.size(); ++i)
    CheckInput(
        request,
        graph == nullptr ? GraphValue{true, static_cast<int>(i)} : graph->steps()[at].inputs[i],
        operands.inputs[i]);
}

void Simulation::CheckInput(const Request& request, const GraphValue& value, const void* data) {
  const auto at = static_cast<size_t>(value.index);
  if (!value.is_input) {
    const uint64_t mark = request.MarkOf(at);
    return CheckMark(data, request.problem.graph->steps()[at].problem.outputs[0].bytes(),
                     request.enqueued ? mark : ~mark, request);
  }
  if (request.stays_in != nullptr && at + 1 == request.problem.inputs.size()) {
    const ResidentsOracle::Content& content = *request.stays_in->content;
    return CheckMark(data, static_cast<size_t>(content.bytes), content.mark, request);
  }
  // What is sent may come to the device when the plan is made.
  const size_t mark = std::min(request.input_bytes, sizeof(request.key.id));
  if (mark > 0 && request.enqueued && std::memcmp(data, &request.key.id, mark) != 0)
    oracle_.Fail(absl::StrCat("request ", request.key.id, " runs on another's input"));
}

void Simulation::CheckMark(const void* data, size_t bytes, uint64_t mark, const Request& request) {
  for (size_t at = 0; at < bytes; at += kMarkStep)
    if (std::memcmp(static_cast<const char*>(data) + at, &mark, sizeof(mark)) != 0)
      oracle_.Fail(absl::StrCat("a tensor of request ", request.key.id, " is another's"));
}

}  // namespace warpcall::testing
