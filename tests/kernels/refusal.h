// Problems that an op refuses.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/op.h"

namespace warpcall::testing {

// The text of the refusal, which must be INVALID_ARGUMENT.
inline std::string Refusal(const Op& op, const std::vector<TensorSpec>& inputs,
                           const std::vector<NamedAttribute>& attributes = {}) {
  const absl::StatusOr<Problem> problem = MakeProblem(op, inputs, attributes);
  EXPECT_EQ(problem.status().code(), absl::StatusCode::kInvalidArgument) << problem.status();
  return std::string(problem.status().message());
}

}  // namespace warpcall::testing
