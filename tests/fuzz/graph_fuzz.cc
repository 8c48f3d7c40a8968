// A graph that the input describes: inputs, steps that read any of them and of each other, outputs.
// One that is taken keeps every rule of graphs, its intermediates do not overlap, and a worker
// reads from its bytes the same graph.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/graph/step_graph.h"
#include "server/transport/graph_request.h"
#include "server/worker/graph_message.h"
#include "tests/cpu_kernels.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

constexpr int kInputsMax = 4;
constexpr int kStepsMax = 16;

// Names that steps and inputs get; the last ones are none.
std::string NameOf(int number) {
  static const std::vector<std::string> odd = {"", "0", "a b", std::string(64, 'x'), "\xff"};
  if (number < 32) return absl::StrCat(number % 2 == 0 ? "n" : "_.-", number);
  return odd[static_cast<size_t>(number) % odd.size()];
}

void AddInput(FuzzInput* decisions, v1::ExecuteGraphRequest* graph) {
  v1::GraphInput& input = *graph->add_inputs();
  const uint8_t odd = decisions->Byte();
  input.set_name(NameOf(odd < 250 ? graph->inputs_size() - 1 : odd - 220));
  input.mutable_tensor()->set_data_type(
      static_cast<v1::DataType>(decisions->Byte() % 16 == 9 ? 0 : 1));
  const int rank = decisions->Byte() % 4;
  for (int i = 0; i < rank; ++i)
    input.mutable_tensor()->add_shape(decisions->Byte() % 8 == 7 ? decisions->Number(8)
                                                                 : decisions->Byte() % 5);
}

void AddStep(FuzzInput* decisions, v1::ExecuteGraphRequest* graph) {
  static const char* const kernels[] = {"gelu",  "softmax", "identity", "matmul",
                                        "fused", "linear",  "rmsnorm",  "graph"};
  v1::GraphStep& step = *graph->add_steps();
  const int known = graph->inputs_size() + graph->steps_size() - 1;
  const uint8_t odd = decisions->Byte();
  step.set_name(NameOf(odd < 250 ? known : odd - 220));
  step.set_kernel(kernels[decisions->Byte() % 64 % std::size(kernels)]);
  for (int i = decisions->Byte() % 4; i > 0; --i) {
    const uint8_t read = decisions->Byte();
    step.add_inputs(NameOf(read < 250 ? read % (known + 1) : read - 220));
  }
  const uint8_t attributes = decisions->Byte();
  auto& map = *step.mutable_attributes();
  if (step.kernel() == "fused")
    map["expression"].set_string_value((attributes & 1) == 0 ? "x0" : "x0 + x1");
  if ((attributes & 2) != 0) map["axis"].set_int_value(decisions->Byte() % 4 - 2);
  if ((attributes & 4) != 0) map["transpose_b"].set_bool_value(true);
  if ((attributes & 8) != 0) map["epsilon"].set_double_value(0.5);
}

v1::ExecuteGraphRequest ReadRequest(FuzzInput* decisions) {
  v1::ExecuteGraphRequest graph;
  const int inputs = decisions->Byte() % (kInputsMax + 1);
  const int steps = decisions->Byte() % (kStepsMax + 1);
  for (int i = 0; i < inputs; ++i) AddInput(decisions, &graph);
  for (int i = 0; i < steps; ++i) AddStep(decisions, &graph);
  for (int i = decisions->Byte() % 5; i > 0; --i) {
    v1::GraphOutput& output = *graph.add_outputs();
    const uint8_t number = decisions->Byte();
    output.set_name(NameOf(number < 250 ? number % (inputs + steps + 1) : number - 220));
    const uint8_t flags = decisions->Byte();
    output.set_keep((flags & 1) != 0);
    if ((flags & 2) != 0) output.set_ttl_ns(1);
  }
  graph.set_step_times(decisions->Byte() % 2 == 1);
  return graph;
}

// What the rules demand of names and references, by other means than the reader's.
std::string CheckRules(const v1::ExecuteGraphRequest& request) {
  std::set<std::string> known;
  std::set<std::string> unread;
  for (const v1::GraphInput& input : request.inputs()) {
    if (!known.insert(input.name()).second) return "a name twice";
    unread.insert(input.name());
  }
  for (const v1::GraphStep& step : request.steps()) {
    for (const std::string& read : step.inputs()) {
      if (known.count(read) == 0) return "a step reads what is not there";
      unread.erase(read);
    }
    if (!known.insert(step.name()).second) return "a name twice";
    unread.insert(step.name());
  }
  for (const v1::GraphOutput& output : request.outputs()) unread.erase(output.name());
  return unread.empty() ? "" : absl::StrCat("nobody reads ", *unread.begin());
}

std::string CheckPlaces(const StepGraph& graph) {
  const int count = static_cast<int>(graph.steps().size());
  std::vector<int> last(graph.steps().size());
  for (int i = 0; i < count; ++i) {
    last[static_cast<size_t>(i)] = i;
    for (const GraphValue& value : graph.steps()[static_cast<size_t>(i)].inputs)
      if (!value.is_input) last[static_cast<size_t>(value.index)] = i;
  }
  const auto end = [&graph](int step) {
    return graph.OffsetOf(step) +
           graph.steps()[static_cast<size_t>(step)].problem.outputs[0].bytes();
  };
  for (int a = 0; a < count; ++a) {
    if (graph.OutputOf(a) >= 0) continue;
    if (end(a) > graph.arena_bytes()) return "a result lies outside";
    for (int b = a + 1; b <= last[static_cast<size_t>(a)]; ++b)
      if (graph.OutputOf(b) < 0 && graph.OffsetOf(a) < end(b) && graph.OffsetOf(b) < end(a))
        return absl::StrCat("results ", a, " and ", b, " overlap");
  }
  return "";
}

std::string CheckWorkerReads(const Problem& problem) {
  std::vector<const Row*> rows;
  const Registry& registry = CpuKernelsAndGraphs();
  for (const Step& step : problem.graph->steps())
    rows.push_back(
        &registry.rows()[static_cast<size_t>((*registry.Find(step.op->name))->rows.back())]);
  Problem sent = problem;
  sent.graph = problem.graph->With(rows);
  const absl::StatusOr<std::string> bytes = worker::GraphToBytes(sent);
  if (!bytes.ok()) return bytes.status().ToString();
  const absl::StatusOr<Problem> read = worker::GraphFromBytes(*bytes, registry);
  if (!read.ok()) return read.status().ToString();
  return *read == sent ? "" : "a worker reads another graph";
}

}  // namespace

std::string FuzzGraph(absl::string_view input) {
  FuzzInput decisions(input);
  const v1::ExecuteGraphRequest request = ReadRequest(&decisions);
  const auto is_refusal = [](const absl::Status& status) {
    return (absl::IsInvalidArgument(status) || absl::IsNotFound(status)) &&
           status.message().size() < 2000;
  };
  const absl::StatusOr<GraphWishes> wishes = ReadGraphWishes(request, CpuKernelsAndGraphs());
  if (!wishes.ok()) return is_refusal(wishes.status()) ? "" : wishes.status().ToString();
  const absl::StatusOr<Problem> problem = ReadGraph(request, wishes->steps);
  if (!problem.ok()) return is_refusal(problem.status()) ? "" : problem.status().ToString();
  if (std::string broken = CheckRules(request); !broken.empty()) return broken;
  if (std::string broken = CheckPlaces(*problem->graph); !broken.empty()) return broken;
  if (problem->graph->times_steps() != request.step_times()) return "step times";
  return CheckWorkerReads(*problem);
}

}  // namespace warpcall::testing
