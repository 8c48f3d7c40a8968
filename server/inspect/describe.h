// Describes how a row would run a problem, without running it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op.h"
#include "kernels/plan.h"
#include "server/runtime/device.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::inspect {

v1::Attribute ToProto(const AttributeValue& value);
v1::SourceFile ToProto(SourceFile file);

// Describes a launch of `shape` that does `work`. `shape` is zeros for a row without a grid.
v1::LaunchInfo LaunchInfoOf(const Implementation& row, const Work& work, const LaunchShape& shape);

// Fills all but chosen_because, which the server knows. The row's `plan` gets nothing to try
// candidates on. The row's own files come first. The calling thread becomes the device's.
absl::StatusOr<v1::DescribeResponse> DescribePlan(const Op& op, const Implementation& row,
                                                  const Problem& problem, Device* device);

// Describes how each step of a graph's problem would run. `names`: the steps'. Fills in what a
// DescribeResponse has of a graph.
absl::StatusOr<v1::DescribeResponse> DescribeGraph(const Problem& problem,
                                                   absl::Span<const std::string> names,
                                                   Device* device);

// The bound for the row's results in `data_type`, as text for a reader.
std::string ToleranceOf(const Op& op, const Implementation& row, DataType data_type);

}  // namespace warpcall::inspect
