// How a large call is cut into calls that can run beside each other. Internal to the library.
#pragma once

#include <cstdint>
#include <vector>

#include "client/cpp/client.h"

namespace warpcall::client {

// The least that a stripe carries of a call's split inputs. Below it the fixed cost of a request,
// some tenth of a millisecond, eats what a second connection gains. A first value, to be measured
// on machines with more cores than connections.
inline constexpr int64_t kStripeBytesMin = int64_t{1} << 20;

// Neighbouring parts of every split input and of every output, and all of the shared inputs.
struct Stripe {
  int64_t begin_part = 0;
  // Of the first split input, of which it has shape[0] parts.
  int64_t begin_element = 0;
  int64_t elements = 0;
  std::vector<int64_t> shape;
};

// Whether the call's inputs would fill at least two stripes: only then is it worth while to know
// the kernel.
bool LargeEnoughToStripe(const Call& call);

// One stripe for each of at most `stripes_max` connections. Empty when the call is to be sent
// whole: it is too small, or has more in shared inputs than a stripe in others, the kernel's
// problems are one piece, or the call is not one that the kernel can mean, which the server then
// says in its own words.
std::vector<Stripe> PlanStripes(const Call& call, const KernelInfo& kernel, int stripes_max);

// The call for one stripe of `call`; its tensors share the bytes of the call's. REQUIRES, as
// PlaceOutput: the stripe was planned for this call.
Call StripeCall(const Call& call, const KernelInfo& kernel, const Stripe& stripe);

// What an output of `stripe`'s shape is a piece of, and how many of its elements lie before it.
struct OutputPlace {
  std::vector<int64_t> whole_shape;
  int64_t begin_element = 0;
};
// INTERNAL when no output of the stripe can have the shape.
absl::StatusOr<OutputPlace> PlaceOutput(const Call& call, const KernelInfo& kernel,
                                        const Stripe& stripe, const std::vector<int64_t>& shape);

}  // namespace warpcall::client
