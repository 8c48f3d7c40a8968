// Splits a large call into calls that can run concurrently. Internal to the library.
#pragma once

#include <cstdint>
#include <vector>

#include "warpcall/client.h"

namespace warpcall::client {

// The least that a stripe carries of a call's split inputs. Below it the fixed cost of a request,
// some tenth of a millisecond, eats what a second connection gains. A first value, to be measured
// on machines with more cores than connections.
inline constexpr int64_t kStripeBytesMin = int64_t{1} << 20;

// Adjacent parts of every split input and of every output, with all of the shared inputs.
struct Stripe {
  int64_t begin_part = 0;
  // Range and shape within the first split input; shape[0] is the stripe's number of parts.
  int64_t begin_element = 0;
  int64_t elements = 0;
  std::vector<int64_t> shape;
};

// True when the call's inputs would fill at least two stripes, and no operand stays on the server.
// Fetch the kernel's description only then.
bool LargeEnoughToStripe(const Call& call);

// Returns one stripe for each of at most `stripes_max` connections. Empty when the call has to
// be sent whole: it is too small, its shared inputs outweigh a stripe's split inputs, the
// kernel's problems are one piece, or the call does not fit the kernel, which the server then
// reports.
std::vector<Stripe> PlanStripes(const Call& call, const KernelInfo& kernel, int stripes_max);

// The call for one stripe of `call`; its tensors share the bytes of the call's. REQUIRES, as
// PlaceOutput: the stripe was planned for this call.
Call StripeCall(const Call& call, const KernelInfo& kernel, const Stripe& stripe);

// The whole output that a stripe's output belongs to, and the elements in front of the stripe.
struct OutputPlace {
  std::vector<int64_t> whole_shape;
  int64_t begin_element = 0;
};
// INTERNAL when no output of the stripe can have the shape.
absl::StatusOr<OutputPlace> PlaceOutput(const Call& call, const KernelInfo& kernel,
                                        const Stripe& stripe, const std::vector<int64_t>& shape);

}  // namespace warpcall::client
