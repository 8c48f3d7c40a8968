// The right output of a problem, element by element, and each element's error bound.
#pragma once

#include <vector>

#include "kernels/check/cases.h"
#include "kernels/cpu/thread_pool.h"

namespace warpcall {

struct Truth {
  TensorSpec spec;                   // output 0's
  std::vector<double> values;        // by the op's definition, not rounded to the output's type
  std::vector<ElementError> errors;  // one per value
};

// The inputs that a truth is computed from.
struct TruthSource {
  const Op& op;  // has a definition
  const OpCases& cases;
  const Problem& problem;
  const Operands& inputs;  // in host memory
};

// The part of a truth that a slice of the op's definition yields.
struct SliceTruth {
  Slice slice;
  std::vector<double> values;        // in the slice's order, as Truth's
  std::vector<ElementError> errors;  // one per value
};
SliceTruth SliceTruthOf(const TruthSource& source, int64_t index);

// Holds 24 bytes an element.
Truth TruthOf(const TruthSource& source, cpu::ThreadPool& pool);
// Likewise, in the memory of an earlier truth.
void FindTruth(const TruthSource& source, cpu::ThreadPool& pool, Truth* truth);

}  // namespace warpcall
