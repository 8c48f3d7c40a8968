// What a row would do for a problem, without running it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kernels/op.h"
#include "kernels/plan.h"
#include "server/runtime/device.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::inspect {

// What a launch of `shape`, zeros where it has no grid, that does `work` is described as.
v1::LaunchInfo LaunchInfoOf(const Implementation& row, const Work& work, const LaunchShape& shape);

// All but chosen_because, which the server knows. The row's `plan` is given nothing to try
// candidates on; the row's own files come first. The calling thread becomes the device's.
absl::StatusOr<v1::DescribeResponse> DescribePlan(const Op& op, const Implementation& row,
                                                  const Problem& problem, Device* device);

// The bound that the row's results in `data_type` are checked against, for a reader.
std::string ToleranceOf(const Op& op, const Implementation& row, DataType data_type);

}  // namespace warpcall::inspect
