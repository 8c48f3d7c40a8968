#include "tests/kernels/rows.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "tests/kernels/variant_rows.h"
#include "tests/kernels/vector_targets.h"

namespace warpcall::testing {

std::vector<TestedRow> TestedRows(const Op& op) {
  const auto kernel = FullRegistry().Find(op.name);
  std::vector<TestedRow> tested;
  if (!kernel.ok()) return tested;
  const int64_t best = VectorTargets().front();
  for (int id : (*kernel)->rows) {
    const Implementation& row = FullRegistry().rows()[id].implementation;
    if (!RunsHere(row)) continue;
    if (row.family != Family::kCpu) {
      tested.push_back({&row, best, row.name});
      continue;
    }
    for (int64_t target : VectorTargets())
      tested.push_back({&row, target, absl::StrCat(row.name, " on ", VectorTargetName(target))});
  }
  return tested;
}

absl::Status Supports(const TestedRow& tested, const Problem& problem) {
  const Implementation& row = *tested.row;
  if (!absl::c_linear_search(row.data_types, problem.inputs[0].data_type))
    return absl::UnimplementedError("data type is not in its list");
  return row.supports(problem, row.device_kind == DeviceKind::kCuda ? *TestGpuProperties()
                                                                    : TestDeviceProperties());
}

absl::StatusOr<std::vector<Memory>> RunTested(const TestedRow& tested, const Problem& problem,
                                              absl::Span<const Memory> inputs, uint8_t poison) {
  const ScopedVectorTarget target(tested.target);
  return RunRow(*tested.row, problem, inputs, poison);
}

bool IsSmallEnough(const Problem& problem) {
  const int64_t elements_max = TestElementsMax();
  return elements_max == 0 || absl::c_all_of(problem.inputs, [&](const TensorSpec& spec) {
           return spec.elements() <= elements_max;
         });
}

}  // namespace warpcall::testing
