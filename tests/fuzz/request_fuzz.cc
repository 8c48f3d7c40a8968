// The first byte chooses the fragments, the others are the message: an ExecuteRequest, an
// ExecuteGraphRequest, and a PutHeader.
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "tests/proto/split_check.h"

namespace warpcall::testing {

std::string FuzzRequest(absl::string_view input) {
  FuzzInput decisions(input);
  const uint8_t fragments = decisions.Byte();
  const absl::string_view message = decisions.Rest();
  for (const auto compare : {CompareWithProtobuf, CompareGraphWithProtobuf, ComparePutWithProtobuf})
    if (std::string difference = compare(message, fragments); !difference.empty())
      return difference;
  return "";
}

}  // namespace warpcall::testing
