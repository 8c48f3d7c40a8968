// Shared by the implementations of family `triton`: turns an order into a plan that launches one of
// the kernels compiled for the op.
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

// The kernels of this build. UNIMPLEMENTED gives the reason why there are none.
absl::StatusOr<const KernelSet*> KernelsOf(absl::string_view op, DataType data_type);

// For Implementation::variant_names: empty where there are no kernels.
std::vector<std::string> VariantNames(absl::string_view op, DataType data_type);

// OK, or the reason why no kernel takes the order; for Implementation::supports.
absl::Status CheckSupported(absl::string_view op, DataType data_type, const Order& order,
                            const DeviceProperties& device);

// Launches the variant that the context names, or the one chosen for the problem. A kernel is
// loaded now if there is a device to load it onto, else at its first launch.
absl::StatusOr<PlanPtr> PlanKernel(absl::string_view op, const Problem& problem, const Order& order,
                                   const PlanContext& context);

}  // namespace warpcall::triton
