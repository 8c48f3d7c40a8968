// The client's side of an ExecuteStream against a server that says anything.
#pragma once

#include <string>

#include "tests/fuzz/fuzz_input.h"

namespace warpcall::testing {

// Returns the first violation, or "".
std::string CheckClientStream(FuzzInput* decisions);

}  // namespace warpcall::testing
