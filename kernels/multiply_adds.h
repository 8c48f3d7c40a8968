// What only multiplies and adds: a device's arithmetic at its best, the ceiling that kernels bound
// by it are measured by.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "kernels/device_properties.h"
#include "kernels/op.h"
#include "kernels/plan.h"

namespace warpcall {

// What products are made of: tf32 of float32 operands, the others of operands of that type. Sums
// are float32.
enum class Arithmetic : uint8_t { kFloat32, kTf32, kFloat16, kBFloat16 };
const char* ArithmeticName(Arithmetic arithmetic);

// That of input 0's type; tf32 where the problem's attribute "precision" says so.
Arithmetic ArithmeticOf(const Op& op, const Problem& problem);

// A plan without operands or workspace that keeps the whole device at it for some milliseconds.
struct MultiplyAdds {
  PlanPtr plan;
  int64_t flops = 0;  // of a launch, two for each multiply-add
};

// UNIMPLEMENTED where nothing is known that reaches the device's limit.
using MultiplyAddsSource =
    std::function<absl::StatusOr<MultiplyAdds>(Arithmetic, const DeviceProperties&)>;

}  // namespace warpcall
