// What the rows of family `triton` share: from an order to a plan that launches one of the kernels
// compiled for their op.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/op.h"
#include "kernels/plan.h"
#include "kernels/triton/manifest.h"
#include "kernels/triton/select.h"

namespace warpcall::triton {

// Those of this build. UNIMPLEMENTED gives the reason why there are none.
absl::StatusOr<const KernelSet*> KernelsOf(absl::string_view op, DataType data_type);

// For Implementation::variant_names: empty where there are no kernels.
std::vector<std::string> VariantNames(absl::string_view op, DataType data_type);

// OK, or why no kernel takes it, for Implementation::supports.
absl::Status CheckSupported(absl::string_view op, DataType data_type, const Order& order,
                            const DeviceProperties& device);

// Launches the variant asked for or the choice for such a problem. A kernel is loaded now where
// there is a device to load it onto, else when it is first launched.
absl::StatusOr<PlanPtr> PlanKernel(absl::string_view op, const Problem& problem, const Order& order,
                                   const PlanContext& context);

}  // namespace warpcall::triton
