// The first byte chooses the fragments, the others are the message.
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "tests/proto/split_check.h"

namespace warpcall::testing {

std::string FuzzInferRequest(absl::string_view input) {
  FuzzInput decisions(input);
  const uint8_t fragments = decisions.Byte();
  return CompareInferWithProtobuf(decisions.Rest(), fragments);
}

}  // namespace warpcall::testing
