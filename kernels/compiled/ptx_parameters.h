// The parameters of kernels, as PTX declares them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::compiled {

struct PtxParameter {
  std::string type = {};  // "f32", "u64", or "b8" of a struct or an array
  int64_t bytes = 0;      // of all of it

  bool operator==(const PtxParameter& other) const = default;
};

// Returns the parameters of `kernel`, named as in the machine code, in order. Takes any bytes:
// INTERNAL if `ptx` declares no such kernel, or a parameter of which it does not say the size.
absl::StatusOr<std::vector<PtxParameter>> PtxParametersOf(absl::string_view ptx,
                                                          absl::string_view kernel);

}  // namespace warpcall::compiled
