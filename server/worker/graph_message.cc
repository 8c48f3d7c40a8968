#include "server/worker/graph_message.h"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/graph/step_graph.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::worker {
namespace {

// Appends numbers of 64 bits, and texts after their lengths.
class Writer {
 public:
  template <typename T>
  void Number(T value) {
    if constexpr (std::is_same_v<T, double>) {
      return Number(std::bit_cast<int64_t>(value));
    } else {
      const auto wide = static_cast<int64_t>(value);
      bytes_.append(reinterpret_cast<const char*>(&wide), sizeof(wide));
    }
  }
  void Text(absl::string_view text) {
    Number(text.size());
    absl::StrAppend(&bytes_, text);
  }
  void Spec(const TensorSpec& spec) {
    Number(static_cast<int>(spec.data_type));
    Number(spec.dims.size());
    for (const int64_t dim : spec.dims) Number(dim);
  }
  void Attribute(const AttributeValue& value) {
    Number(value.index());
    if (const auto* text = std::get_if<std::string>(&value)) return Text(*text);
    if (const auto* real = std::get_if<double>(&value)) return Number(*real);
    if (const auto* number = std::get_if<int64_t>(&value)) return Number(*number);
    Number(std::get<bool>(value));
  }
  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(absl::string_view bytes) : rest_(bytes) {}

  // A number from `least` to `most`; INTERNAL says what is none.
  absl::StatusOr<int64_t> Number(absl::string_view what, int64_t least, int64_t most) {
    std::array<char, sizeof(int64_t)> bytes;
    if (rest_.size() < bytes.size()) return CutOff(what);
    rest_.copy(bytes.data(), bytes.size());
    rest_.remove_prefix(bytes.size());
    const auto value = std::bit_cast<int64_t>(bytes);
    if (value >= least && value <= most) return value;
    return absl::InternalError(
        absl::StrCat("the other process sent nonsense: ", what, " is ", value));
  }
  absl::StatusOr<int64_t> Count(absl::string_view what, size_t most) {
    return Number(what, 0, static_cast<int64_t>(most));
  }
  absl::StatusOr<int64_t> Any(absl::string_view what) {
    return Number(what, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  }
  absl::StatusOr<std::string> Text() {
    ASSIGN_OR_RETURN(const int64_t size, Count("a number of bytes", rest_.size()));
    if (static_cast<size_t>(size) > rest_.size()) return CutOff("a text");
    std::string text(rest_.substr(0, static_cast<size_t>(size)));
    rest_.remove_prefix(text.size());
    return text;
  }
  absl::StatusOr<TensorSpec> Spec() {
    TensorSpec spec;
    ASSIGN_OR_RETURN(const int64_t type, Count("a data type", std::numeric_limits<uint8_t>::max()));
    ASSIGN_OR_RETURN(const int64_t rank, Count("a rank", kRankMax));
    spec.data_type = static_cast<DataType>(type);
    for (int64_t i = 0; i < rank; ++i) {
      ASSIGN_OR_RETURN(const int64_t dim, Any("a dimension"));
      spec.dims.push_back(dim);
    }
    return spec;
  }
  absl::StatusOr<AttributeValue> Attribute() {
    ASSIGN_OR_RETURN(const int64_t kind,
                     Count("an attribute's type", std::variant_size_v<AttributeValue> - 1));
    if (kind == 3) return Text();
    ASSIGN_OR_RETURN(const int64_t value, Any("an attribute"));
    if (kind == 0) return AttributeValue(value != 0);
    if (kind == 1) return AttributeValue(value);
    return AttributeValue(std::bit_cast<double>(value));
  }
  absl::Status CheckEnd() const {
    if (rest_.empty()) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("the other process sent nonsense: ", rest_.size(), " bytes behind a graph"));
  }

 private:
  static absl::Status CutOff(absl::string_view what) {
    return absl::InternalError(
        absl::StrCat("the other process sent nonsense: a graph ends before ", what));
  }

  absl::string_view rest_;
};

absl::StatusOr<Step> ReadStep(const Registry& registry, absl::Span<const TensorSpec> inputs,
                              absl::Span<const Step> before, Reader* reader) {
  Step step;
  ASSIGN_OR_RETURN(const int64_t row, reader->Count("a row", registry.rows().size() - 1));
  step.row = &registry.rows()[static_cast<size_t>(row)];
  const Kernel& kernel = registry.kernels()[static_cast<size_t>(step.row->kernel)];
  if (!kernel.is_named())
    return absl::InternalError("the other process sent nonsense: a graph in a graph");
  step.op = kernel.op;
  ASSIGN_OR_RETURN(const int64_t reads, reader->Count("a number of inputs", kGraphInputsMax));
  absl::InlinedVector<TensorSpec, 4> specs;
  for (int64_t i = 0; i < reads; ++i) {
    ASSIGN_OR_RETURN(const int64_t is_input, reader->Count("a kind of value", 1));
    const size_t values = is_input != 0 ? inputs.size() : before.size();
    ASSIGN_OR_RETURN(const int64_t index,
                     reader->Number("a value's number", 0, static_cast<int64_t>(values) - 1));
    step.inputs.push_back({is_input != 0, static_cast<int>(index)});
    const auto at = static_cast<size_t>(index);
    specs.push_back(is_input != 0 ? inputs[at] : before[at].problem.outputs[0]);
  }
  absl::InlinedVector<NamedAttribute, 3> attributes;
  for (const AttributeSpec& spec : step.op->attributes) {
    ASSIGN_OR_RETURN(AttributeValue value, reader->Attribute());
    attributes.push_back({spec.name, std::move(value)});
  }
  ASSIGN_OR_RETURN(step.problem, MakeProblem(*step.op, specs, attributes));
  if (step.problem.outputs.size() != 1)
    return absl::InternalError("the other process sent nonsense: a step of several outputs");
  return step;
}

}  // namespace

absl::StatusOr<std::string> GraphToBytes(const Problem& problem) {
  WARPCALL_CHECK(problem.graph != nullptr);
  const StepGraph& graph = *problem.graph;
  Writer writer;
  writer.Number(problem.inputs.size());
  for (const TensorSpec& spec : problem.inputs) writer.Spec(spec);
  writer.Number(graph.steps().size());
  for (const Step& step : graph.steps()) {
    WARPCALL_CHECK(step.row != nullptr, step.op->name);
    writer.Number(step.row->id);
    writer.Number(step.inputs.size());
    for (const GraphValue& value : step.inputs) {
      writer.Number(value.is_input);
      writer.Number(value.index);
    }
    for (const AttributeValue& value : step.problem.attributes) writer.Attribute(value);
  }
  writer.Number(graph.outputs().size());
  for (const int output : graph.outputs()) writer.Number(output);
  writer.Number(graph.times_steps());
  std::string bytes = std::move(writer).Take();
  if (bytes.size() <= kGraphBytesMax) return bytes;
  return absl::InternalError(absl::StrCat("a worker takes graphs of ", kGraphBytesMax,
                                          " bytes at most, got ", bytes.size()));
}

absl::StatusOr<Problem> GraphFromBytes(absl::string_view bytes, const Registry& registry) {
  Reader reader(bytes);
  std::vector<TensorSpec> inputs;
  ASSIGN_OR_RETURN(const int64_t input_count,
                   reader.Number("a number of inputs", 1, kGraphInputsMax));
  for (int64_t i = 0; i < input_count; ++i) {
    ASSIGN_OR_RETURN(inputs.emplace_back(), reader.Spec());
    RETURN_IF_ERROR(CheckTensorSpec(inputs.back(), "an input of a graph"));
  }
  std::vector<Step> steps;
  ASSIGN_OR_RETURN(const int64_t step_count, reader.Number("a number of steps", 1, kGraphStepsMax));
  for (int64_t i = 0; i < step_count; ++i) {
    ASSIGN_OR_RETURN(Step step, ReadStep(registry, inputs, steps, &reader));
    steps.push_back(std::move(step));
  }
  std::vector<int> outputs;
  std::vector<bool> is_output(steps.size());
  ASSIGN_OR_RETURN(const int64_t output_count, reader.Number("a number of outputs", 1, step_count));
  for (int64_t i = 0; i < output_count; ++i) {
    ASSIGN_OR_RETURN(const int64_t output, reader.Number("an output", 0, step_count - 1));
    if (is_output[static_cast<size_t>(output)])
      return absl::InternalError("the other process sent nonsense: a step is an output twice");
    is_output[static_cast<size_t>(output)] = true;
    outputs.push_back(static_cast<int>(output));
  }
  ASSIGN_OR_RETURN(const int64_t times_steps, reader.Count("a flag", 1));
  RETURN_IF_ERROR(reader.CheckEnd());
  return MakeGraphProblem(
      std::make_shared<const StepGraph>(std::move(steps), std::move(outputs), times_steps != 0),
      inputs);
}

}  // namespace warpcall::worker
