#include "server/transport/graph_request.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/graph/step_graph.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/transport/codec.h"

namespace warpcall {
namespace {

constexpr size_t kNameBytesMax = 63;

// A name that may be none.
std::string Shown(absl::string_view name) {
  return absl::CHexEscape(name.substr(0, kNameBytesMax));
}
std::string Quoted(absl::string_view name) { return absl::StrCat("\"", Shown(name), "\""); }

absl::Status CheckName(absl::string_view name) {
  const auto is_inner = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
  };
  bool is_right = !name.empty() && name.size() <= kNameBytesMax &&
                  (absl::ascii_isalpha(static_cast<unsigned char>(name[0])) || name[0] == '_');
  for (const char c : name) is_right &= is_inner(c);
  if (is_right) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the name has ", name.size(), " bytes; names have 1 to ", kNameBytesMax,
                   " of A-Z, a-z, 0-9, \"_\", \".\" and \"-\", the first a letter or \"_\""));
}

absl::Status CheckCount(absl::string_view what, int count, int count_max) {
  if (count >= 1 && count <= count_max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the graph has ", count, " ", what, "; it takes 1 to ", count_max));
}

// The names of a graph, each of one input or one step.
class Names {
 public:
  absl::Status Add(absl::string_view name, GraphValue value) {
    RETURN_IF_ERROR(CheckName(name));
    if (values_.emplace(name, value).second) return absl::OkStatus();
    return absl::InvalidArgumentError("the name stands for an input or a step before it already");
  }
  // Null: there is no such name.
  const GraphValue* Find(absl::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
  }

 private:
  absl::flat_hash_map<absl::string_view, GraphValue> values_;
};

// Reads the parts of a graph, in the order of the calls.
class GraphReader {
 public:
  GraphReader(const v1::ExecuteGraphRequest& request, absl::Span<const StepQuestion> steps)
      : request_(request), questions_(steps) {}

  absl::Status ReadInputs() {
    for (const v1::GraphInput& input : request_.inputs()) {
      const std::string label = GraphInputLabel(input.name());
      if (absl::Status status = names_.Add(input.name(), {true, static_cast<int>(inputs_.size())});
          !status.ok())
        return WithPrefix(label, status);
      ASSIGN_OR_RETURN(inputs_.emplace_back(), ToTensorSpec(input.tensor(), label));
    }
    input_used_.resize(inputs_.size());
    return absl::OkStatus();
  }

  absl::Status ReadSteps() {
    for (const v1::GraphStep& step : request_.steps())
      if (absl::Status status = ReadStep(step); !status.ok())
        return WithPrefix(StepLabel(Shown(step.name())), status);
    step_used_.resize(steps_.size());
    return absl::OkStatus();
  }

  absl::Status ReadOutputs() {
    for (const v1::GraphOutput& output : request_.outputs()) {
      const GraphValue* const value = names_.Find(output.name());
      const auto refuse = [&output](absl::string_view why) {
        return absl::InvalidArgumentError(absl::StrCat(GraphOutputLabel(output.name()), ": ", why));
      };
      if (value == nullptr) return refuse("no step has this name");
      if (value->is_input) return refuse("it is an input; an output is the result of a step");
      if (step_used_[static_cast<size_t>(value->index)])
        return refuse("it is an output already; each is one once");
      step_used_[static_cast<size_t>(value->index)] = true;
      outputs_.push_back(value->index);
    }
    return absl::OkStatus();
  }

  // Steps that an output needs, and the inputs that they read.
  absl::Status CheckUses() {
    for (size_t i = steps_.size(); i-- > 0;) {
      if (!step_used_[i])
        return absl::InvalidArgumentError(
            absl::StrCat(StepLabel(questions_[i].name), ": no output needs it"));
      for (const GraphValue& value : steps_[i].inputs)
        (value.is_input ? input_used_ : step_used_)[static_cast<size_t>(value.index)] = true;
    }
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (!input_used_[i])
        return absl::InvalidArgumentError(absl::StrCat(
            GraphInputLabel(request_.inputs(static_cast<int>(i)).name()), ": no step reads it"));
    return absl::OkStatus();
  }

  Problem Take() && {
    return MakeGraphProblem(std::make_shared<const StepGraph>(
                                std::move(steps_), std::move(outputs_), request_.step_times()),
                            inputs_);
  }

 private:
  absl::Status ReadStep(const v1::GraphStep& asked) {
    Step step;
    step.op = questions_[steps_.size()].kernel->op;
    absl::InlinedVector<TensorSpec, 4> specs;
    for (const std::string& name : asked.inputs()) {
      const GraphValue* const value = names_.Find(name);
      if (value == nullptr)
        return absl::InvalidArgumentError(
            absl::StrCat("it reads ", Quoted(name), ", which is no input and no earlier step"));
      step.inputs.push_back(*value);
      const auto index = static_cast<size_t>(value->index);
      specs.push_back(value->is_input ? inputs_[index] : steps_[index].problem.outputs[0]);
    }
    ASSIGN_OR_RETURN(step.problem, ToProblem(specs, asked.attributes(), *step.op));
    if (step.problem.outputs.size() != 1)
      return absl::InvalidArgumentError(absl::StrCat(
          step.op->name, " has ", step.problem.outputs.size(), " outputs; a step has 1"));
    RETURN_IF_ERROR(names_.Add(asked.name(), {false, static_cast<int>(steps_.size())}));
    steps_.push_back(std::move(step));
    return absl::OkStatus();
  }

  const v1::ExecuteGraphRequest& request_;
  const absl::Span<const StepQuestion> questions_;
  Names names_;
  std::vector<TensorSpec> inputs_;
  std::vector<bool> input_used_;
  std::vector<Step> steps_;
  std::vector<bool> step_used_;
  std::vector<int> outputs_;
};

absl::StatusOr<std::optional<Residents::Terms>> ReadKeep(const v1::GraphOutput& output) {
  if (output.keep()) return Residents::Terms{.ttl_ns = output.ttl_ns(), .label = output.label()};
  if (output.ttl_ns() == 0 && output.label().empty()) return std::nullopt;
  return absl::InvalidArgumentError(absl::StrCat(
      GraphOutputLabel(output.name()), ": it has a time to live or a label, and no keep"));
}

}  // namespace

std::string GraphInputLabel(absl::string_view name) { return absl::StrCat("input ", Quoted(name)); }
std::string GraphOutputLabel(absl::string_view name) {
  return absl::StrCat("output ", Quoted(name));
}

absl::StatusOr<GraphWishes> ReadGraphWishes(const v1::ExecuteGraphRequest& request,
                                            const Registry& registry) {
  RETURN_IF_ERROR(CheckCount("inputs", request.inputs_size(), kGraphInputsMax));
  RETURN_IF_ERROR(CheckCount("steps", request.steps_size(), kGraphStepsMax));
  RETURN_IF_ERROR(CheckCount("outputs", request.outputs_size(), request.steps_size()));
  GraphWishes wishes;
  for (const v1::GraphStep& step : request.steps()) {
    const std::string label = StepLabel(Shown(step.name()));
    const absl::StatusOr<const Kernel*> kernel = registry.Find(step.kernel());
    if (!kernel.ok()) return WithPrefix(label, kernel.status());
    if (absl::Status status = registry.CheckImplementationName(**kernel, step.implementation());
        !status.ok())
      return WithPrefix(label, status);
    wishes.steps.push_back({*kernel, step.name(), step.implementation()});
  }
  bool any_stays = false;
  for (const v1::GraphOutput& output : request.outputs()) {
    ASSIGN_OR_RETURN(wishes.keeps.emplace_back(), ReadKeep(output));
    any_stays |= wishes.keeps.back().has_value();
  }
  if (!any_stays) wishes.keeps.clear();
  return wishes;
}

absl::StatusOr<Problem> ReadGraph(const v1::ExecuteGraphRequest& request,
                                  absl::Span<const StepQuestion> steps) {
  WARPCALL_CHECK(steps.size() == static_cast<size_t>(request.steps_size()), steps.size());
  GraphReader reader(request, steps);
  RETURN_IF_ERROR(reader.ReadInputs());
  RETURN_IF_ERROR(reader.ReadSteps());
  RETURN_IF_ERROR(reader.ReadOutputs());
  RETURN_IF_ERROR(reader.CheckUses());
  return std::move(reader).Take();
}

void AddGraphChoice(const StepGraph& graph, v1::ExecuteGraphRequest* chosen) {
  for (const Step& step : graph.steps())
    chosen->add_steps()->set_implementation(step.row->implementation.name);
}

absl::StatusOr<ChosenGraph> ReadChosenGraph(const Registry& registry,
                                            const DeviceProperties& device,
                                            v1::ExecuteGraphRequest* request) {
  const int count = request->steps_size() / 2;
  for (int i = 0; i < count; ++i)
    request->mutable_steps(i)->set_implementation(request->steps(count + i).implementation());
  request->mutable_steps()->DeleteSubrange(count, count);
  ASSIGN_OR_RETURN(const GraphWishes wishes, ReadGraphWishes(*request, registry));
  ChosenGraph chosen;
  ASSIGN_OR_RETURN(chosen.problem, ReadGraph(*request, wishes.steps));
  std::vector<const Row*> rows;
  for (size_t i = 0; i < wishes.steps.size(); ++i) {
    const StepQuestion& step = wishes.steps[i];
    chosen.names.push_back(std::string(step.name));
    ASSIGN_OR_RETURN(rows.emplace_back(),
                     registry.Select(*step.kernel, step.implementation,
                                     chosen.problem.graph->steps()[i].problem, device));
  }
  chosen.problem.graph = chosen.problem.graph->With(rows);
  return chosen;
}

}  // namespace warpcall
