// Launches that only multiply and add, to measure a device's peak arithmetic: the ceiling that
// compute-bound kernels are compared with.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "kernels/device_properties.h"
#include "kernels/op.h"
#include "kernels/plan.h"

namespace warpcall {

// Operand type of the products: tf32 takes float32 operands, the other kinds operands of their own
// type. Sums are float32.
enum class Arithmetic : uint8_t { kFloat32, kTf32, kFloat16, kBFloat16 };
inline constexpr int kArithmeticCount = 4;
const char* ArithmeticName(Arithmetic arithmetic);

// Returns the kind for input 0's type; tf32 if the problem's attribute "precision" says so.
Arithmetic ArithmeticOf(const Op& op, const Problem& problem);

// A plan without operands or workspace that keeps the whole device busy for some milliseconds.
struct MultiplyAdds {
  PlanPtr plan;
  int64_t flops = 0;  // per launch, two for each multiply-add
};

// Returns UNIMPLEMENTED if no way is known to reach the device's limit.
using MultiplyAddsSource =
    std::function<absl::StatusOr<MultiplyAdds>(Arithmetic, const DeviceProperties&)>;

}  // namespace warpcall
