#include "kernels/linear/linear.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/common/round.h"
#include "kernels/common/saturate.h"
#include "kernels/gelu/gelu.h"
#include "kernels/matmul/matmul.h"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace linear {
namespace {

absl::Status CheckTypes(const Problem& problem) {
  const DataType x = problem.inputs[kX].data_type;
  for (const int i : {kWeight, kBias}) {
    const DataType other = problem.inputs[static_cast<size_t>(i)].data_type;
    if (other != x)
      return absl::InvalidArgumentError(
          absl::StrCat("linear takes inputs of one data type, got x ", DataTypeName(x), ", ",
                       i == kWeight ? "weight " : "bias ", DataTypeName(other)));
  }
  if (std::get<std::string>(problem.attributes[kPrecision]) == "tf32" && x != DataType::kFloat32)
    return absl::InvalidArgumentError(
        absl::StrCat("attribute precision=\"tf32\" takes float32 inputs, got ", DataTypeName(x)));
  return absl::OkStatus();
}

absl::Status InferOutputs(Problem* problem) {
  RETURN_IF_ERROR(CheckTypes(*problem));
  const TensorSpec& x = problem->inputs[kX];
  const TensorSpec& weight = problem->inputs[kWeight];
  const TensorSpec& bias = problem->inputs[kBias];
  if (weight.dims.size() != 2 || weight.dims[1] != x.dims.back())
    return absl::InvalidArgumentError(absl::StrCat("input 1 (weight) is ", ToString(weight),
                                                   "; for x ", ToString(x), " it must be [n,",
                                                   x.dims.back(), "]"));
  if (bias.dims.size() != 1 || bias.dims[0] != weight.dims[0])
    return absl::InvalidArgumentError(absl::StrCat("input 2 (bias) is ", ToString(bias),
                                                   "; for weight ", ToString(weight),
                                                   " it must be [", weight.dims[0], "]"));
  problem->outputs.push_back(x);
  problem->outputs[0].dims.back() = weight.dims[0];
  return absl::OkStatus();
}

Work WorkOf(const Problem& problem) {
  Work work = MatmulOp().work(ProductOf(problem));
  work.bytes = SaturatingAdd(work.bytes, static_cast<int64_t>(problem.inputs[kBias].bytes()));
  work.flops = SaturatingAdd(work.flops, problem.outputs[0].elements());
  return work;
}

}  // namespace

matmul::Activation ActivationOf(const Problem& problem) {
  const std::string& name = std::get<std::string>(problem.attributes[kActivation]);
  if (name == "relu") return matmul::Activation::kRelu;
  if (name == "gelu") return matmul::Activation::kGelu;
  if (name == "gelu_erf") return matmul::Activation::kGeluErf;
  return matmul::Activation::kNone;
}

double Activate(matmul::Activation activation, double value) {
  switch (activation) {
    case matmul::Activation::kNone:
      return value;
    case matmul::Activation::kRelu:
      return value < 0 ? 0 : value;
    case matmul::Activation::kGelu:
      return gelu::Exactly(value, /*tanh=*/true);
    case matmul::Activation::kGeluErf:
      return gelu::Exactly(value, /*tanh=*/false);
  }
  return value;
}

Problem ProductOf(const Problem& problem) {
  WARPCALL_DCHECK(problem.inputs.size() == 3, problem.inputs.size());
  const Dims& x = problem.inputs[kX].dims;
  const Dims& weight = problem.inputs[kWeight].dims;
  const DataType type = problem.inputs[kX].data_type;
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < x.size(); ++i) rows *= x[i];
  Problem product;
  product.inputs = {{type, {rows, x.back()}}, {type, weight}};
  product.outputs = {{type, {rows, weight[0]}}};
  product.attributes = {false, true, problem.attributes[kPrecision]};
  return product;
}

void FinishWithoutSums(const Problem& problem, const Operands& operands) {
  const int64_t n = problem.outputs[0].dims.back();
  const matmul::Activation activation = ActivationOf(problem);
  DispatchDataType(problem.outputs[0].data_type, [&]<typename T>(T) {
    const T* const bias = static_cast<const T*>(operands.inputs[kBias]);
    T* const y = static_cast<T*>(operands.outputs[0]);
    for (int64_t i = 0, elements = problem.outputs[0].elements(); i < elements; ++i)
      y[i] = FromDouble<T>(Activate(activation, double{ToFloat(bias[i % n])}));
  });
}

}  // namespace linear

const Op& LinearOp() {
  static const Op& op = *new Op{
      .name = "linear",
      .summary = "activation(x[..., k] x weight[n, k]^T + bias[n]), rounded once",
      .input_names = {"x", "weight", "bias"},
      .attributes = {{.name = "activation",
                      .summary = "activation of the sums; gelu is the tanh form",
                      .default_value = std::string("none"),
                      .allowed_values = {"none", "relu", "gelu", "gelu_erf"}},
                     {.name = "precision",
                      .summary = "tf32 allows products of float32 inputs with 10-bit mantissas",
                      .default_value = std::string("ieee"),
                      .allowed_values = {"ieee", "tf32"}}},
      .infer_outputs = linear::InferOutputs,
      .work = linear::WorkOf,
      .independence = Independence::kRows,
      .input_roles = {OperandRole::kSplit, OperandRole::kShared, OperandRole::kShared},
      .definition = &linear::kDefinition,
      .cases = linear::Cases};
  return op;
}

}  // namespace warpcall
