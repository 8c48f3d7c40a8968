// The law that the tests and the fuzz target hold SplitTensors to: together with protobuf's parser
// for the header it accepts exactly what protobuf's parser accepts for the whole, and reads the
// same from it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace warpcall::testing {

// Splits `message`, cut into fragments at places derived from `seed`, and compares. Empty when the
// law holds, otherwise what differs.
std::string CompareWithProtobuf(absl::string_view message, uint32_t seed);

}  // namespace warpcall::testing
