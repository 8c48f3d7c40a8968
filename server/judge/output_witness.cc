#include "server/judge/output_witness.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/inspect/fill.h"
#include "server/inspect/reference.h"

namespace warpcall::judge {
namespace {

// Inputs begin at one of so many places of their pool.
constexpr size_t kShifts = 4096;
// Every byte of an output before a timed launch, and before another one.
constexpr char kRemains = '\xFF';
constexpr char kOtherRemains = '\0';
constexpr int64_t kTruthNsMax = 20'000'000;

}  // namespace

OutputWitness::OutputWitness(Subject subject, uint64_t secret, cpu::ThreadPool* pool)
    : subject_(std::move(subject)),
      cases_(subject_.op->cases()),
      random_(secret),
      pool_(pool),
      output_(subject_.problem->outputs[0].bytes()),
      another_(output_.size()) {
  for (size_t i = 0; i < subject_.problem->inputs.size(); ++i) {
    const TensorSpec& spec = subject_.problem->inputs[i];
    const size_t bytes = spec.bytes() + kShifts * kOperandAlignmentBytes;
    std::vector<char>& values = pools_.emplace_back(bytes);
    const auto elements = static_cast<int64_t>(bytes / ElementBytes(spec.data_type));
    inspect::Fill({spec.data_type, {elements}},
                  inspect::NormalSequence(random_(), static_cast<int>(i)), *pool_, values.data());
  }
}

std::vector<const void*> OutputWitness::InputsAt(size_t shift) const {
  std::vector<const void*> inputs;
  for (const std::vector<char>& values : pools_)
    inputs.push_back(values.data() + shift * kOperandAlignmentBytes);
  return inputs;
}

absl::Status OutputWitness::Before(const Row& row, inspect::OperandSets* sets) {
  if (&row != subject_.row) return absl::OkStatus();
  shifts_.resize(static_cast<size_t>(sets->size()));
  for (size_t i = 0; i < shifts_.size(); ++i) {
    shifts_[i] = random_() % kShifts;
    RETURN_IF_ERROR(sets->Renew(static_cast<int64_t>(i), InputsAt(shifts_[i]), kRemains));
  }
  return absl::OkStatus();
}

absl::Status OutputWitness::After(const Row& row, inspect::OperandSets* sets,
                                  inspect::RowTimer::SetsUsed used) {
  if (&row != subject_.row || output_.empty()) return absl::OkStatus();
  const auto set_of = [&](int64_t i) { return (used.first + i) % sets->size(); };
  const int64_t looked_at =
      set_of(static_cast<int64_t>(random_() % static_cast<uint64_t>(used.count)));
  RETURN_IF_ERROR(sets->ReadOutputOf(looked_at, output_.data()));
  RETURN_IF_ERROR(CompareWithTruth(looked_at, output_));
  for (int64_t i = 0; i < used.count && subject_.deterministic; ++i) {
    RETURN_IF_ERROR(sets->ReadOutputOf(set_of(i), output_.data()));
    RETURN_IF_ERROR(CompareWithAnother(sets, set_of(i)));
  }
  return absl::OkStatus();
}

absl::Status OutputWitness::CompareWithTruth(int64_t set, const std::vector<char>& output) {
  Operands inputs;
  for (const void* const input : InputsAt(shifts_[static_cast<size_t>(set)]))
    inputs.inputs.push_back(input);
  const inspect::Reference reference({subject_.op, subject_.problem, &inputs, &cases_}, kTruthNsMax,
                                     pool_);
  const inspect::OutputError error = reference.Compare(output.data());
  if (error.max <= 1) return absl::OkStatus();
  return Found(Finding::kIncorrect,
               absl::StrCat("while it was timed, an error was ", error.max, " times its bound"));
}

absl::Status OutputWitness::LaunchAgain(inspect::OperandSets* sets, int64_t set) {
  Stream* const stream = sets->stream();
  RETURN_IF_ERROR(sets->Renew(set, InputsAt(shifts_[static_cast<size_t>(set)]), kOtherRemains));
  ASSIGN_OR_RETURN(const Buffer scratch,
                   stream->AllocateMemory(subject_.plan->traits().workspace_bytes));
  return inspect::RunPhase(stream, Milestone::kKernelDone, [&] {
    return subject_.plan->Enqueue((*sets)[set],
                                  {.stream = stream->native_handle(), .workspace = scratch.data()});
  });
}

absl::Status OutputWitness::CompareWithAnother(inspect::OperandSets* sets, int64_t set) {
  RETURN_IF_ERROR(LaunchAgain(sets, set));
  RETURN_IF_ERROR(sets->ReadOutputOf(set, another_.data()));
  const auto differs = std::mismatch(output_.begin(), output_.end(), another_.begin()).first;
  if (differs == output_.end()) return absl::OkStatus();
  RETURN_IF_ERROR(CompareWithTruth(set, output_));
  RETURN_IF_ERROR(CompareWithTruth(set, another_));
  return Found(Finding::kNondeterministic,
               absl::StrCat("byte ", differs - output_.begin(),
                            " of an output differs between a timed launch and another one on the "
                            "same inputs"));
}

absl::Status OutputWitness::Found(Finding finding, std::string detail) {
  finding_ = finding;
  detail_ = std::move(detail);
  return absl::FailedPreconditionError(detail_);
}

}  // namespace warpcall::judge
