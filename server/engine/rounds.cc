#include "server/engine/rounds.h"

#include <algorithm>
#include <numeric>

#include "kernels/common/saturate.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

template <typename Body>
void ForEachOperand(const Problem& problem, Body&& body) {
  for (const TensorSpec& spec : problem.inputs) body(spec);
  for (const TensorSpec& spec : problem.outputs) body(spec);
}

// The least number of parts whose bytes are a multiple of the alignment in every operand.
int64_t AlignedParts(const Rounds& rounds) {
  size_t parts = 1;  // a power of two, as the alignment is, so that the largest fits all
  for (const size_t bytes : rounds.part_bytes)
    parts = std::max(parts, kOperandAlignmentBytes / std::gcd(kOperandAlignmentBytes, bytes));
  return static_cast<int64_t>(parts);
}

}  // namespace

int64_t Rounds::PartsIn(int64_t round) const {
  WARPCALL_DCHECK(round >= 0 && round < count, round, count);
  return std::min(parts_per_round, parts - round * parts_per_round);
}

size_t Rounds::Offset(int64_t round, size_t operand) const {
  WARPCALL_DCHECK(round >= 0 && round < count, round, count);
  WARPCALL_CHECK(operand < part_bytes.size(), operand, part_bytes.size());
  return static_cast<size_t>(round * parts_per_round) * part_bytes[operand];
}

bool Rounds::IsThere(int64_t round, size_t operand) const {
  WARPCALL_DCHECK(round == 0 || operand < part_bytes.size(), round, operand);
  return round > 0 && part_bytes[operand] == 0;
}

Rounds PlanRounds(const Op* op, const Implementation& row, const Problem& problem,
                  const Device& device) {
  const size_t round_bytes = device.round_bytes();
  if (op == nullptr || round_bytes == 0) return {};
  const size_t bytes = BytesOf(*op, problem, OperandRole::kSplit);
  if (bytes < 2 * round_bytes) return {};
  Rounds rounds;
  rounds.parts = PartsOf(*op, problem);
  if (rounds.parts < 2) return {};
  ForEachOperand(problem, [&](const TensorSpec& spec) {
    const bool shared = RoleOf(*op, problem, rounds.part_bytes.size()) == OperandRole::kShared;
    rounds.part_bytes.push_back(shared ? 0 : spec.bytes() / static_cast<size_t>(rounds.parts));
  });
  const auto fitting = static_cast<int64_t>(bytes / round_bytes);
  const int64_t wanted = CeilDivide(rounds.parts, fitting < kRoundsMax ? fitting : kRoundsOfLarge);
  const int64_t step = AlignedParts(rounds);
  rounds.parts_per_round = CeilDivide(wanted, step) * step;
  rounds.count = CeilDivide(rounds.parts, rounds.parts_per_round);
  if (rounds.count < 2) return {};
  WARPCALL_DCHECK(rounds.PartsIn(rounds.count - 1) > 0, rounds.parts, rounds.parts_per_round);
  for (const int64_t round : {int64_t{0}, rounds.count - 1}) {
    const Problem part = TakeParts(*op, problem, rounds.PartsIn(round));
    if (!row.supports(part, device.properties()).ok()) return {};
  }
  return rounds;
}

}  // namespace warpcall
