// Writes the beginning of generated CUDA sources: types, conversions, and the functions that steps
// and row reductions call.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/expression/graph.h"
#include "proto/common/data_type.h"

namespace warpcall::expression {

struct CudaPrelude {
  DataType data_type;
  int vector = 1;       // elements of a Vector
  int row_threads = 1;  // that reduce a row: a power of two
  bool reduces = false;
  int64_t seed = 0;
};

std::string PreludeText(const CudaPrelude& prelude);

// An operation in CUDA C++, with $0, $1, $2 for its operands, for absl::Substitute. REQUIRES: it is
// computed from its operands alone.
const char* CudaTemplateOf(Operator op);

}  // namespace warpcall::expression
