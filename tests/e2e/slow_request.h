// A request that keeps one lane busy.
#pragma once

#include <cstdint>

#include "tests/e2e/raw_call.h"

namespace warpcall::testing {

// Rows and columns of what takes some hundred milliseconds, the naive product.
#ifdef __SANITIZE_ADDRESS__
inline constexpr int64_t kSlowSize = 350;  // instrumented it takes some ten times as long
#else
inline constexpr int64_t kSlowSize = 700;
#endif

inline v1::ExecuteRequest SlowRequest(int64_t size = kSlowSize) {
  v1::Tensor square = FloatTensor(size * size);
  square.set_shape(0, size);
  square.add_shape(size);
  v1::ExecuteRequest request = Request("matmul", {square, square});
  request.set_implementation("manual");
  return request;
}

}  // namespace warpcall::testing
