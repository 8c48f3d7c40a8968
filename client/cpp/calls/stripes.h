// How a large call is cut into calls that can run beside each other. Internal to the library.
#pragma once

#include <cstdint>
#include <vector>

#include "client/cpp/client.h"

namespace warpcall::client {

// The least that a stripe carries of a call's inputs. Below it the fixed cost of a request, some
// tenth of a millisecond, eats what a second connection gains. A first value, to be measured on
// machines with more cores than connections.
inline constexpr int64_t kStripeBytesMin = int64_t{1} << 20;

// Parts [begin, begin + count) of every input and output, which all have one shape.
struct Stripe {
  int64_t begin_element = 0;
  int64_t elements = 0;
  std::vector<int64_t> shape;
};

// Whether the call's inputs would fill at least two stripes: only then is it worth while to know
// the kernel.
bool LargeEnoughToStripe(const Call& call);

// One stripe for each of at most `stripes_max` connections. Empty when the call is to be sent
// whole: it is too small, the kernel's problems are one piece, or the call is not one that the
// kernel can mean, which the server then says in its own words.
std::vector<Stripe> PlanStripes(const Call& call, const KernelInfo& kernel, int stripes_max);

// The call for one stripe of `call`; its tensors share the bytes of the call's.
Call StripeCall(const Call& call, const KernelInfo& kernel, const Stripe& stripe);

}  // namespace warpcall::client
