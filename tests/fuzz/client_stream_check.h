// The client's side of an ExecuteStream against a server that says anything.
#pragma once

#include <string>

#include "tests/fuzz/fuzz_input.h"

namespace warpcall::testing {

// Says what was not as it must be.
std::string CheckClientStream(FuzzInput* decisions);

}  // namespace warpcall::testing
