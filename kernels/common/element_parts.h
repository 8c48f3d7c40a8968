// Op::parts and Op::take_parts of ops with one input and one output like it, whose elements don't
// depend on each other.
#pragma once

#include <cstdint>

#include "kernels/op.h"

namespace warpcall {

inline int64_t ElementParts(const Problem& problem) { return problem.inputs[0].elements(); }

inline Problem TakeElements(const Problem& problem, int64_t count) {
  Problem part = problem;
  part.inputs[0].dims = {count};
  part.outputs[0].dims = {count};
  return part;
}

}  // namespace warpcall
