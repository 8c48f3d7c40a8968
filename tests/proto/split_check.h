// The law that the tests and the fuzz targets hold SplitTensors and its like to: together with
// protobuf's parser for the header they accept exactly what protobuf's parser accepts for the
// whole, and read the same from it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace warpcall::testing {

// Splits `message`, an ExecuteRequest, cut into fragments at places derived from `seed`, and
// compares. Empty when the law holds, otherwise what differs.
std::string CompareWithProtobuf(absl::string_view message, uint32_t seed);
// CompareWithProtobuf for a ModelInferRequest.
std::string CompareInferWithProtobuf(absl::string_view message, uint32_t seed);

}  // namespace warpcall::testing
