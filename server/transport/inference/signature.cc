#include "server/transport/inference/signature.h"

#include "absl/strings/string_view.h"

namespace warpcall::oip {
namespace {

// Any size that all inputs may have.
constexpr int64_t kSomeSize = 8;
// Ranks of more inputs are not tried: an op that takes so many takes them by their number.
constexpr size_t kInputsTried = 4;
constexpr int64_t kAnySize = -1;

inference::DataType ToProto(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return inference::TYPE_FP32;
    case DataType::kFloat16:
      return inference::TYPE_FP16;
    case DataType::kBFloat16:
      return inference::TYPE_BF16;
  }
  AbortOnDataType(type);
}

DataType TypeOf(const Model& model) { return model.data_type.value_or(DataType::kFloat32); }

void Describe(const OperandInfo& operand, DataType type,
              inference::ModelMetadataResponse::TensorMetadata* tensor) {
  tensor->set_name(operand.name);
  tensor->set_datatype(WireTypeName(type));
  for (size_t i = 0; i < operand.rank; ++i) tensor->add_shape(kAnySize);
}

template <typename Tensor>
void TellConfig(const OperandInfo& operand, DataType type, Tensor* tensor) {
  tensor->set_name(operand.name);
  tensor->set_data_type(ToProto(type));
  for (size_t i = 0; i < operand.rank; ++i) tensor->add_dims(kAnySize);
}

}  // namespace

const char* OutputName(const Op& op) {
  return absl::string_view(op.input_names.front()) == "a" ? "c" : "y";
}

Signature SignatureOf(const Op& op) {
  Signature signature;
  const size_t count = op.input_names.size();
  for (size_t i = 0; i < count; ++i)
    signature.inputs.push_back({op.input_names[i], 2, op.inputs_min != 0 && i >= op.inputs_min});
  signature.outputs.push_back({OutputName(op)});
  if (count > kInputsTried) return signature;
  // Bit i of `vectors`: the last input but i is one.
  for (size_t vectors = 0; vectors < size_t{1} << count; ++vectors) {
    std::vector<TensorSpec> specs(count);
    for (size_t i = 0; i < count; ++i)
      specs[i].dims.assign((vectors >> (count - 1 - i) & 1) != 0 ? 1 : 2, kSomeSize);
    const absl::StatusOr<Problem> problem = MakeProblem(op, specs, {});
    if (!problem.ok()) continue;
    for (size_t i = 0; i < count; ++i) signature.inputs[i].rank = specs[i].dims.size();
    signature.outputs[0].rank = problem->outputs[0].dims.size();
    break;
  }
  return signature;
}

void Describe(const Model& model, inference::ModelMetadataResponse* metadata) {
  const Signature signature = SignatureOf(*model.kernel->op);
  metadata->set_name(model.name);
  metadata->add_versions(kModelVersion);
  metadata->set_platform(kPlatform);
  for (const OperandInfo& input : signature.inputs)
    Describe(input, TypeOf(model), metadata->add_inputs());
  for (const OperandInfo& output : signature.outputs)
    Describe(output, TypeOf(model), metadata->add_outputs());
}

void Describe(const Model& model, inference::ModelConfig* config) {
  const Signature signature = SignatureOf(*model.kernel->op);
  config->set_name(model.name);
  config->set_platform(kPlatform);
  config->set_backend(kPlatform);
  for (const OperandInfo& input : signature.inputs) {
    TellConfig(input, TypeOf(model), config->add_input());
    config->mutable_input(config->input_size() - 1)->set_optional(input.optional);
  }
  for (const OperandInfo& output : signature.outputs)
    TellConfig(output, TypeOf(model), config->add_output());
}

}  // namespace warpcall::oip
