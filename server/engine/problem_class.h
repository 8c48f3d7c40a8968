// Which problems are alike to the rows of their op: what is fastest, and right, for one of them is
// taken to be so for all.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "kernels/op.h"

namespace warpcall {

// Of one op. Equal for problems whose operands have the same types, about the same sizes and the
// same alignment, and whose attributes name the same thing to do: see ClassOf.
using ProblemClass = absl::InlinedVector<uint32_t, 24>;

// What counts, so far as the op's kind of independence tells: of elementwise ops the number of
// elements; of rows and products the last dimensions and the product of those before; around an
// axis what lies before, along and behind it; else every dimension. Each falls into SizeBucket. Of
// each operand the alignment of its last such dimension counts, up to 16 bytes. Strings, bools and
// integers count as they are; numbers of type double, an axis that the sizes tell of, and an
// integer called "seed" do not: they are operands of the arithmetic.
ProblemClass ClassOf(const Op& op, const Problem& problem);

// 0 for 0, and round(2 log2(size)) + 1 for others: a bucket reaches from 2^(-1/4) to
// 2^(1/4) of its middle, which is a power of the square root of 2. 1 to 4 have each their own.
uint32_t SizeBucket(int64_t size);

}  // namespace warpcall
