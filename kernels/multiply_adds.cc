#include "kernels/multiply_adds.h"

#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "proto/common/check.h"

namespace warpcall {

const char* ArithmeticName(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kFloat32:
      return "float32";
    case Arithmetic::kTf32:
      return "tf32";
    case Arithmetic::kFloat16:
      return "float16";
    case Arithmetic::kBFloat16:
      return "bfloat16";
  }
  return "?";
}

Arithmetic ArithmeticOf(const Op& op, const Problem& problem) {
  WARPCALL_DCHECK(!problem.inputs.empty(), op.name);
  WARPCALL_DCHECK(problem.attributes.size() == op.attributes.size(), op.name);
  for (size_t i = 0; i < op.attributes.size(); ++i) {
    const std::string* const text = std::get_if<std::string>(&problem.attributes[i]);
    if (absl::string_view(op.attributes[i].name) == "precision" && text != nullptr &&
        *text == "tf32")
      return Arithmetic::kTf32;
  }
  switch (problem.inputs[0].data_type) {
    case DataType::kFloat32:
      return Arithmetic::kFloat32;
    case DataType::kFloat16:
      return Arithmetic::kFloat16;
    case DataType::kBFloat16:
      return Arithmetic::kBFloat16;
  }
  return Arithmetic::kFloat32;
}

}  // namespace warpcall
