// How a large job is cut: rounds whose copies in, kernels and copies out can overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "kernels/op.h"
#include "server/runtime/device.h"

namespace warpcall {

struct Rounds {
  int64_t count = 1;
  // With one round, the rest says nothing: the problem runs as it is.
  int64_t parts = 0;                          // of the whole problem
  int64_t parts_per_round = 0;                // the last round may have fewer
  absl::InlinedVector<size_t, 3> part_bytes;  // per operand, inputs first; 0 when it is shared

  int64_t PartsIn(int64_t round) const;
  size_t Offset(int64_t round, size_t operand) const;  // bytes into the whole operand
  // Whether the operand is there since the first round.
  bool IsThere(int64_t round, size_t operand) const;
};

// So many rounds at most. More hide nothing more, and a job that would have more than the first
// gets only the second: beside copies both ways and in pieces of 16 MiB, a kernel's time says
// little about the kernel (gelu of 1 GiB: 563 us in 16 rounds on an H200, 502 alone), and what such
// a job's rounds leave unhidden is little beside its way through the network.
inline constexpr int64_t kRoundsMax = 64;
inline constexpr int64_t kRoundsOfLarge = 2;

// Rounds of at least device.round_bytes() of split operands, each of which starts aligned as
// operands must be. One round when `op` is null or has no parts, when there is too little to cut,
// or when `row` does not take the parts.
Rounds PlanRounds(const Op* op, const Implementation& row, const Problem& problem,
                  const Device& device);

}  // namespace warpcall
