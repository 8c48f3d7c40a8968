// What a row would do for a problem, without running it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/op.h"
#include "kernels/plan.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

struct Description {
  LaunchShape shape;  // zeros where there is no grid
  std::string grid;   // "132x1x1"; empty where there is none
  std::string block;  // likewise
  int64_t workspace_bytes = 0;
  std::vector<SourceFile> files;  // the row's own first
};

// As the row's `plan`, which is given nothing to try candidates on. The calling thread becomes the
// device's.
absl::StatusOr<Description> DescribePlan(const Implementation& row, const Problem& problem,
                                         Device* device);

// The bound that the row's results in `data_type` are checked against, for a reader.
std::string ToleranceOf(const Op& op, const Implementation& row, DataType data_type);

}  // namespace warpcall::inspect
