// The names that expressions of a kernel's manifest use, and their values for a problem.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/op.h"

namespace warpcall::manifest {

// Position among the op's operands, inputs first, of an input's name or of the output's: y, c. -1:
// there is none.
int FindOperand(const Op& op, absl::string_view name);
// Position of the op's attribute `NAME` of "attr.NAME"; -1: it has none, or `name` is another one.
int FindAttribute(const Op& op, absl::string_view name);

bool IsName(const Op& op, absl::string_view name);
// The names for people: "rows, cols, ..., x.shape[i], ...".
std::string NamesOf(const Op& op);

// A problem on a device.
struct NamedProblem {
  const Op& op;
  const Problem& problem;
  const DeviceProperties& device;

  // INVALID_ARGUMENT where the problem has no such input or dimension. REQUIRES: IsName of it.
  absl::StatusOr<int64_t> ValueOf(absl::string_view name) const;

 private:
  const TensorSpec* FindTensor(absl::string_view operand) const;
  absl::StatusOr<int64_t> OperandValue(absl::string_view name) const;
  absl::StatusOr<int64_t> ProductSize(absl::string_view name) const;
};

}  // namespace warpcall::manifest
