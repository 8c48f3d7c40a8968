// Cuts a large job into rounds, whose copies in, kernels and copies out can overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "kernels/op.h"
#include "server/runtime/device.h"

namespace warpcall {

struct Rounds {
  int64_t count = 1;
  // With one round, the other members are unused: the problem runs whole.
  int64_t parts = 0;                          // in the whole problem
  int64_t parts_per_round = 0;                // the last round may have fewer
  absl::InlinedVector<size_t, 3> part_bytes;  // per operand, inputs first; 0 when it is shared

  int64_t PartsIn(int64_t round) const;
  size_t Offset(int64_t round, size_t operand) const;  // bytes into the whole operand
  // True if an earlier round has already copied the operand.
  bool IsThere(int64_t round, size_t operand) const;
};

// Upper bound of the rounds. More hide nothing more, and a job that would have more than the first
// gets only the second: beside copies both ways and in pieces of 16 MiB, a kernel's time says
// little about the kernel (gelu of 1 GiB: 563 us in 16 rounds on an H200, 502 alone). The copies
// that such a job leaves unhidden are short beside its way through the network.
inline constexpr int64_t kRoundsMax = 64;
inline constexpr int64_t kRoundsOfLarge = 2;

// Plans rounds of at least device.round_bytes() of split operands, each aligned as operands must
// be. Returns one round when `op` is null or has no parts, when the job is too small to cut, or
// when `row` does not accept the parts.
Rounds PlanRounds(const Op* op, const Implementation& row, const Problem& problem,
                  const Device& device);

}  // namespace warpcall
