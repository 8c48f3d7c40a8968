// What a problem's output should be, element by element, and how far from it a row may be.
#pragma once

#include <vector>

#include "kernels/check/cases.h"
#include "kernels/cpu/thread_pool.h"

namespace warpcall {

struct Truth {
  TensorSpec spec;                   // of output 0
  std::vector<double> values;        // by the op's definition, not rounded to the output's type
  std::vector<ElementError> errors;  // one per value
};

// What a truth is computed from.
struct TruthSource {
  const Op& op;  // has a definition
  const OpCases& cases;
  const Problem& problem;
  const Operands& inputs;  // in host memory
};

// Holds 24 bytes an element.
Truth TruthOf(const TruthSource& source, cpu::ThreadPool& pool);

}  // namespace warpcall
