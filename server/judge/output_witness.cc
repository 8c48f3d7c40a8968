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

// Number of places in their pool at which inputs may begin.
constexpr size_t kPlaces = 4096;
// Values of every byte of an output before a timed launch, and before its repetition.
constexpr char kRemains = '\xFF';
constexpr char kOtherRemains = '\0';
constexpr size_t kRemainsBytes = size_t{1} << 20;
// Longest time for comparing a sample with the definition.
constexpr int64_t kTruthNsMax = 2'000'000;
// Limits of the outputs kept on the device at a time; one is always kept.
constexpr size_t kKeptBytesMax = size_t{64} << 20;
constexpr size_t kKeptMax = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<OutputWitness>> OutputWitness::Create(const Site& site,
                                                                     Subject subject,
                                                                     uint64_t secret) {
  std::unique_ptr<OutputWitness> witness(new OutputWitness(site, std::move(subject), secret));
  const size_t bytes = witness->subject_.problem->outputs[0].bytes();
  ASSIGN_OR_RETURN(witness->output_, site.device->AllocateStaging(bytes));
  ASSIGN_OR_RETURN(witness->differs_, site.device->AllocateStaging(kKeptMax * sizeof(uint32_t)));
  return witness;
}

OutputWitness::OutputWitness(const Site& site, Subject subject, uint64_t secret)
    : site_(site), subject_(std::move(subject)), cases_(subject_.op->cases()), random_(secret) {
  for (size_t i = 0; i < subject_.problem->inputs.size(); ++i) {
    const TensorSpec& spec = subject_.problem->inputs[i];
    const size_t bytes = spec.bytes() + kPlaces * kOperandAlignmentBytes;
    std::vector<char>& values = pools_.emplace_back(bytes);
    const auto elements = static_cast<int64_t>(bytes / ElementBytes(spec.data_type));
    inspect::Fill({spec.data_type, {elements}},
                  inspect::NormalSequence(random_(), static_cast<int>(i)), *site_.pool,
                  values.data());
    host_pools_.push_back(values.data());
  }
}

std::vector<const void*> OutputWitness::InputsAt(absl::Span<const char* const> pools,
                                                 size_t shift) const {
  std::vector<const void*> inputs;
  for (const char* const pool : pools) inputs.push_back(pool + shift * kOperandAlignmentBytes);
  return inputs;
}

absl::Status OutputWitness::Place(inspect::OperandSets* sets) {
  if (placed_ == sets) return absl::OkStatus();
  device_pools_.clear();
  for (const std::vector<char>& values : pools_) {
    ASSIGN_OR_RETURN(device_pools_.emplace_back(), sets->Keep(values.data(), values.size()));
  }
  const auto keep = [&](char value) {
    const std::string piece(kRemainsBytes, value);
    return sets->Keep(piece.data(), piece.size());
  };
  ASSIGN_OR_RETURN(remains_, keep(kRemains));
  ASSIGN_OR_RETURN(other_remains_, keep(kOtherRemains));
  kept_outputs_.clear();
  const size_t bytes = std::max<size_t>(output_.bytes(), 1);
  for (size_t i = 0; i < std::clamp<size_t>(kKeptBytesMax / bytes, 1, kKeptMax); ++i) {
    ASSIGN_OR_RETURN(kept_outputs_.emplace_back(), sets->Keep(nullptr, bytes));
  }
  placed_ = sets;
  return absl::OkStatus();
}

absl::Status OutputWitness::Before(const Row& row, inspect::OperandSets* sets) {
  if (&row != subject_.row) return absl::OkStatus();
  const WatchPause pause(site_.watch);
  RETURN_IF_ERROR(Place(sets));
  shifts_.resize(static_cast<size_t>(sets->size()));
  return inspect::RunPhase(sets->stream(), Milestone::kInputsReady, [&]() -> absl::Status {
    for (size_t i = 0; i < shifts_.size(); ++i) {
      shifts_[i] = random_() % kPlaces;
      RETURN_IF_ERROR(sets->EnqueueRenewal(
          static_cast<int64_t>(i), InputsAt(device_pools_, shifts_[i]), {remains_, kRemainsBytes}));
    }
    return absl::OkStatus();
  });
}

absl::Status OutputWitness::After(const Row& row, inspect::OperandSets* sets,
                                  inspect::RowTimer::SetsUsed used) {
  if (&row != subject_.row || output_.bytes() == 0) return absl::OkStatus();
  const WatchPause pause(site_.watch);
  return Look(sets, used);
}

absl::Status OutputWitness::Look(inspect::OperandSets* sets, inspect::RowTimer::SetsUsed used) {
  const auto set_of = [&](int64_t i) { return (used.first + i) % sets->size(); };
  const int64_t looked_at =
      set_of(static_cast<int64_t>(random_() % static_cast<uint64_t>(used.count)));
  RETURN_IF_ERROR(sets->ReadOutputOf(looked_at, output_.data()));
  RETURN_IF_ERROR(CompareWithTruth(looked_at, output_.data()));
  if (!subject_.deterministic) return absl::OkStatus();
  std::vector<int64_t> group;
  for (int64_t i = 0; i < used.count; ++i) {
    group.push_back(set_of(i));
    if (group.size() < kept_outputs_.size() && i + 1 < used.count) continue;
    RETURN_IF_ERROR(CompareWithOthers(sets, group));
    group.clear();
  }
  return absl::OkStatus();
}

absl::Status OutputWitness::CompareWithTruth(int64_t set, const void* output) {
  Operands inputs;
  for (const void* const input : InputsAt(host_pools_, shifts_[static_cast<size_t>(set)]))
    inputs.inputs.push_back(input);
  const inspect::Reference reference({subject_.op, subject_.problem, &inputs, &cases_}, kTruthNsMax,
                                     site_.pool);
  const inspect::OutputError error = reference.Compare(output);
  if (error.max <= 1) return absl::OkStatus();
  return Found(Finding::kIncorrect,
               absl::StrCat("while it was timed, an error was ", error.max, " times its bound"));
}

absl::Status OutputWitness::LaunchAgain(inspect::OperandSets* sets,
                                        absl::Span<const int64_t> group) {
  Stream* const stream = sets->stream();
  auto* const differs = static_cast<uint32_t*>(differs_.data());
  std::fill_n(differs, group.size(), 0);
  ASSIGN_OR_RETURN(const Buffer scratch,
                   stream->AllocateMemory(subject_.plan->traits().workspace_bytes));
  // A single phase, that of copies, covers all of this: the stream runs it in order.
  return inspect::RunPhase(stream, Milestone::kInputsReady, [&]() -> absl::Status {
    for (size_t i = 0; i < group.size(); ++i) {
      const Operands& operands = (*sets)[group[i]];
      RETURN_IF_ERROR(stream->CopyToDevice(kept_outputs_[i], operands.outputs[0], output_.bytes()));
      RETURN_IF_ERROR(sets->EnqueueRenewal(
          group[i], InputsAt(device_pools_, shifts_[static_cast<size_t>(group[i])]),
          {other_remains_, kRemainsBytes}));
      RETURN_IF_ERROR(subject_.plan->Enqueue(
          operands, {.stream = stream->native_handle(), .workspace = scratch.data()}));
      RETURN_IF_ERROR(
          stream->Compare(kept_outputs_[i], operands.outputs[0], output_.bytes(), differs + i));
    }
    return absl::OkStatus();
  });
}

absl::Status OutputWitness::CompareWithOthers(inspect::OperandSets* sets,
                                              absl::Span<const int64_t> group) {
  if (site_.watch != nullptr) site_.watch->Resume();
  const absl::Status ran = LaunchAgain(sets, group);
  if (site_.watch != nullptr) site_.watch->Pause();
  RETURN_IF_ERROR(ran);
  for (size_t i = 0; i < group.size(); ++i)
    if (static_cast<const uint32_t*>(differs_.data())[i] != 0)
      return JudgeDifference(sets, group[i], i);
  return absl::OkStatus();
}

absl::Status OutputWitness::JudgeDifference(inspect::OperandSets* sets, int64_t set, size_t i) {
  std::vector<char> timed(output_.bytes());
  std::vector<char> another(output_.bytes());
  Stream* const stream = sets->stream();
  RETURN_IF_ERROR(inspect::RunPhase(stream, Milestone::kOutputsReady, [&] {
    return stream->CopyToStaging(timed.data(), kept_outputs_[i], timed.size());
  }));
  RETURN_IF_ERROR(sets->ReadOutputOf(set, another.data()));
  RETURN_IF_ERROR(CompareWithTruth(set, timed.data()));
  RETURN_IF_ERROR(CompareWithTruth(set, another.data()));
  const auto differs = std::mismatch(timed.begin(), timed.end(), another.begin()).first;
  return Found(Finding::kNondeterministic,
               absl::StrCat("byte ", differs - timed.begin(),
                            " of an output differs between a timed launch and another one on the "
                            "same inputs"));
}

absl::Status OutputWitness::Found(Finding finding, std::string detail) {
  finding_ = finding;
  detail_ = std::move(detail);
  return absl::FailedPreconditionError(detail_);
}

}  // namespace warpcall::judge
