// Classes of problems that are alike to the implementations of their op: a measurement of one
// problem holds for its whole class.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "kernels/op.h"

namespace warpcall {

// A class of one op. Equal for problems whose operands have the same types, about the same sizes
// and the same alignment, and whose attributes ask for the same operation: see ClassOf.
using ProblemClass = absl::InlinedVector<uint32_t, 24>;

// The parts of a shape that count depend on the op's independence. Elementwise: the number of
// elements. Rows and products: the last dimensions and the product of those before. Along an axis:
// the sizes before, along and behind it. Others: every dimension. Each size falls into its
// SizeBucket. The alignment of each operand's last such size counts, up to 16 bytes. Strings, bools
// and integers count as they are. Doubles, an axis given by the sizes, and an integer "seed" do
// not: the arithmetic uses them as operands.
ProblemClass ClassOf(const Op& op, const Problem& problem);

// 0 for 0, and round(2 log2(size)) + 1 for others: a bucket reaches from 2^(-1/4) to 2^(1/4) of its
// middle, which is a power of the square root of 2. 1 to 4 have a bucket each.
uint32_t SizeBucket(int64_t size);

}  // namespace warpcall
