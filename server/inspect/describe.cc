#include "server/inspect/describe.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/check/cases.h"
#include "kernels/graph/graph_plan.h"
#include "kernels/graph/step_graph.h"
#include "kernels/source/files.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/inspect/disassembly.h"
#include "server/inspect/profile_rows.h"

namespace warpcall::inspect {
namespace {

// Adds the files whose names the response does not have yet.
void AddFiles(std::vector<SourceFile> more, v1::DescribeResponse* response) {
  for (SourceFile& file : more) {
    const auto has_its_name = [&](const v1::SourceFile& other) {
      return other.name() == file.name;
    };
    if (absl::c_any_of(response->files(), has_its_name)) continue;
    *response->add_files() = ToProto(std::move(file));
  }
}

bool IsExpressible(const Step& step) {
  return step.op->is_expressible != nullptr && step.op->is_expressible(step.problem);
}

// The one step that reads the result of `step`, an intermediate; -1: there are several.
int ReaderOf(const StepGraph& graph, int step) {
  int reader = -1;
  for (size_t i = 0; i < graph.steps().size(); ++i)
    if (absl::c_linear_search(graph.steps()[i].inputs, GraphValue{false, step})) {
      if (reader >= 0) return -1;
      reader = static_cast<int>(i);
    }
  return reader;
}

// The step that one step of `fused` would compute together with `step`; -1: there is none.
int FusesWith(const StepGraph& graph, int step) {
  const Step& made = graph.steps()[static_cast<size_t>(step)];
  if (graph.OutputOf(step) >= 0 || !IsExpressible(made)) return -1;
  const int reader = ReaderOf(graph, step);
  if (reader < 0) return -1;
  const Step& reads = graph.steps()[static_cast<size_t>(reader)];
  const bool is_alike = IsExpressible(reads) && reads.problem.outputs == made.problem.outputs;
  return is_alike ? reader : -1;
}

}  // namespace

v1::Attribute ToProto(const AttributeValue& value) {
  v1::Attribute attribute;
  if (const bool* as_bool = std::get_if<bool>(&value)) attribute.set_bool_value(*as_bool);
  if (const int64_t* as_int = std::get_if<int64_t>(&value)) attribute.set_int_value(*as_int);
  if (const double* as_double = std::get_if<double>(&value)) attribute.set_double_value(*as_double);
  if (const std::string* text = std::get_if<std::string>(&value)) attribute.set_string_value(*text);
  return attribute;
}

v1::SourceFile ToProto(SourceFile file) {
  v1::SourceFile told;
  told.set_name(std::move(file.name));
  told.set_language(std::move(file.language));
  told.set_text(std::move(file.text));
  return told;
}

v1::LaunchInfo LaunchInfoOf(const Implementation& row, const Work& work, const LaunchShape& shape) {
  v1::LaunchInfo launch;
  launch.set_variant(row.name);
  launch.set_bytes_moved(work.bytes);
  launch.set_flops(work.flops);
  launch.set_theoretical_occupancy(shape.theoretical_occupancy);
  launch.set_waves(shape.waves);
  launch.set_gpu_kernels(shape.gpu_kernels);
  return launch;
}

absl::StatusOr<v1::DescribeResponse> DescribePlan(const Op& op, const Implementation& row,
                                                  const Problem& problem, Device* device) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->CreateStream());
  RETURN_IF_ERROR(stream->BindThread());
  ASSIGN_OR_RETURN(const PlanPtr plan, row.plan(problem, {.device = &device->properties(),
                                                          .libraries = stream->libraries()}));
  ASSIGN_OR_RETURN(const LaunchShape shape, plan->shape());
  v1::DescribeResponse response;
  response.set_implementation(FamilyName(row.family));
  response.set_family(FamilyName(row.family));
  response.set_device(device->properties().name);
  *response.mutable_launch() = LaunchInfoOf(row, op.work(problem), shape);
  response.set_registers_per_thread(shape.registers_per_thread);
  response.set_shared_memory_bytes(shape.shared_memory_bytes);
  response.set_local_memory_bytes(shape.local_memory_bytes);
  response.set_grid(Extent(shape.grid));
  response.set_block(Extent(shape.block));
  response.set_workspace_bytes(static_cast<int64_t>(plan->traits().workspace_bytes));
  AddFiles(FilesOf(row.file), &response);
  AddFiles(plan->Sources(), &response);
  AddFiles(Disassemble(plan->Code(), {}), &response);
  response.set_tolerance(ToleranceOf(op, row, problem.outputs[0].data_type));
  return response;
}

absl::StatusOr<v1::DescribeResponse> DescribeGraph(const Problem& problem,
                                                   absl::Span<const std::string> names,
                                                   Device* device) {
  const StepGraph& graph = *problem.graph;
  WARPCALL_CHECK(names.size() == graph.steps().size(), names.size(), graph.steps().size());
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->CreateStream());
  RETURN_IF_ERROR(stream->BindThread());
  ASSIGN_OR_RETURN(const PlanPtr whole, PlanGraph(problem, {.device = &device->properties(),
                                                            .libraries = stream->libraries()}));
  const std::vector<PlanPtr> plans = whole->Steps();
  v1::DescribeResponse response;
  response.set_device(device->properties().name);
  response.set_intermediate_bytes(static_cast<int64_t>(graph.arena_bytes()));
  int64_t workspace_bytes = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const Step& step = graph.steps()[i];
    const Implementation& row = step.row->implementation;
    ASSIGN_OR_RETURN(const LaunchShape shape, plans[i]->shape());
    v1::DescribedStep& described = *response.add_steps();
    described.set_name(names[i]);
    described.set_kernel(step.op->name);
    described.set_implementation(FamilyName(row.family));
    *described.mutable_launch() = LaunchInfoOf(row, graph.WorkOf(i), shape);
    const auto result_bytes = static_cast<int64_t>(step.problem.outputs[0].bytes());
    described.set_result_bytes(result_bytes);
    described.set_is_intermediate(graph.OutputOf(static_cast<int>(i)) < 0);
    if (const int reader = FusesWith(graph, static_cast<int>(i)); reader >= 0) {
      described.set_fuses_with(names[static_cast<size_t>(reader)]);
      described.set_fused_saves_bytes(2 * result_bytes);  // neither written nor read
    }
    workspace_bytes =
        std::max(workspace_bytes, static_cast<int64_t>(plans[i]->traits().workspace_bytes));
    response.mutable_launch()->set_gpu_kernels(response.launch().gpu_kernels() + shape.gpu_kernels);
  }
  const Work work = graph.work();
  response.mutable_launch()->set_bytes_moved(work.bytes);
  response.mutable_launch()->set_flops(work.flops);
  response.set_workspace_bytes(workspace_bytes);
  return response;
}

std::string ToleranceOf(const Op& op, const Implementation& row, DataType data_type) {
  if (op.cases == nullptr) return "none: its results are checked against nothing";
  const OpCases cases = op.cases();
  const Allowance allowance = AllowanceFor(cases, row.name, data_type);
  std::vector<std::string> more;
  if (allowance.arithmetic != 1)
    more.push_back(
        absl::StrCat("its arithmetic may be off by ", allowance.arithmetic, " times as much"));
  if (allowance.roundings != 1)
    more.push_back(absl::StrCat("its result may be rounded ", allowance.roundings, " times"));
  if (allowance.zero_below != 0)
    more.push_back(absl::StrCat("values smaller than ", allowance.zero_below, " may be 0"));
  if (allowance.flushes_subnormal_inputs) more.push_back("subnormal inputs may count as 0");
  if (more.empty()) return cases.tolerance;
  return absl::StrCat(cases.tolerance, "; of ", row.name, ": ", absl::StrJoin(more, ", "), ". ",
                      allowance.reason);
}

}  // namespace warpcall::inspect
