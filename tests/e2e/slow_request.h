// A request that keeps one lane busy.
#pragma once

#include <cstdint>

#include "tests/e2e/raw_call.h"
#include "tests/programs.h"

namespace warpcall::testing {

// Rows and columns of what takes some hundred milliseconds, the naive product; instrumented it
// takes some ten times as long.
inline int64_t SlowSize() { return ProgramsAreSanitized() ? 350 : 700; }

inline v1::ExecuteRequest SlowRequest(int64_t size = SlowSize()) {
  v1::Tensor square = FloatTensor(size * size);
  square.set_shape(0, size);
  square.add_shape(size);
  v1::ExecuteRequest request = Request("matmul", {square, square});
  request.set_implementation("manual");
  return request;
}

}  // namespace warpcall::testing
