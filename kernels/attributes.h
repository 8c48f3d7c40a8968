// An op's attributes where there are no inputs yet.
#pragma once

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op.h"

namespace warpcall {

using AttributeValues = absl::InlinedVector<AttributeValue, 3>;  // in the op's order

// Those given, and the defaults of the others. INVALID_ARGUMENT names an attribute that the op does
// not have, has with another type or requires, or a value that it does not take.
absl::StatusOr<AttributeValues> CompleteAttributes(const Op& op,
                                                   absl::Span<const NamedAttribute> given);

}  // namespace warpcall
