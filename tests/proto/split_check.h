// The law for SplitTensors and its like in tests and fuzz targets: together with protobuf's parser
// for the header they accept exactly the messages that protobuf's parser accepts whole, and read
// the same from them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace warpcall::testing {

// Splits `message`, an ExecuteRequest, cut into fragments at places derived from `seed`, and
// compares. Returns the difference; empty if the law holds.
std::string CompareWithProtobuf(absl::string_view message, uint32_t seed);
// CompareWithProtobuf for an ExecuteGraphRequest.
std::string CompareGraphWithProtobuf(absl::string_view message, uint32_t seed);
// CompareWithProtobuf for a PutHeader.
std::string ComparePutWithProtobuf(absl::string_view message, uint32_t seed);
// CompareWithProtobuf for a ModelInferRequest.
std::string CompareInferWithProtobuf(absl::string_view message, uint32_t seed);

}  // namespace warpcall::testing
