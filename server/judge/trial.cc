#include "server/judge/trial.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "kernels/check/compare.h"
#include "kernels/check/fill.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"
#include "proto/common/status_macros.h"
#include "server/inspect/operand_sets.h"

namespace warpcall::judge {
namespace {

// Random bytes behind and before every operand.
constexpr size_t kBandBytes = 4096;
// Launches begin at one of so many addresses, and one more.
constexpr size_t kShifts = 16;
constexpr uint8_t kPatternByte = 0xA5;
constexpr size_t kQuarters = 4;
// One thread compares so many at a time.
constexpr int64_t kElementsTogether = int64_t{1} << 14;

size_t Aligned(size_t bytes) {
  return (bytes + kOperandAlignmentBytes - 1) / kOperandAlignmentBytes * kOperandAlignmentBytes;
}

const char* FillName(Fill fill) {
  switch (fill) {
    case Fill::kNormal:
      return "normal";
    case Fill::kWide:
      return "wide";
    case Fill::kSpecial:
      return "special";
    case Fill::kBroad:
      return "broad";
    case Fill::kSpikes:
      return "spikes";
    case Fill::kPatterns:
      return "patterns";
    case Fill::kAlike:
      return "alike";
    case Fill::kSubnormal:
      return "subnormal";
    case Fill::kLarge:
      return "large";
  }
  return "unknown";
}

// A NaN with a payload of its own.
uint32_t NanOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 0x7FC0BEEF;
    case DataType::kFloat16:
      return 0x7E5A;
    case DataType::kBFloat16:
      return 0x7FDA;
  }
  AbortOnDataType(type);
}

void FillRandom(std::mt19937_64& random, char* data, size_t bytes) {
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(data + at, &word, sizeof(word));
  }
  const uint64_t word = random();
  std::memcpy(data + at, &word, bytes - at);
}

// Many threads copy and compare large memories, each so many bytes at a time.
constexpr int64_t kBytesTogether = int64_t{1} << 18;

void CopyBytes(const char* from, size_t bytes, char* to, cpu::ThreadPool* pool) {
  pool->ParallelFor(static_cast<int64_t>(bytes), kBytesTogether, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

bool AreEqual(const char* a, const char* b, size_t bytes, cpu::ThreadPool* pool) {
  std::atomic<bool> equal = true;
  pool->ParallelFor(static_cast<int64_t>(bytes), kBytesTogether, [&](int64_t begin, int64_t end) {
    if (std::memcmp(a + begin, b + begin, static_cast<size_t>(end - begin)) != 0) equal = false;
  });
  return equal;
}

double ElementOf(DataType type, const char* data, int64_t index) {
  return DispatchDataType(type, [&]<typename T>(T) -> double {
    T value;
    std::memcpy(&value, data + static_cast<size_t>(index) * sizeof(T), sizeof(T));
    return ToFloat(value);
  });
}

// How far an element may be from its value.
double BoundOf(double value, const ElementError& error, DataType type) {
  return error.arithmetic + HalfUnit(type, std::fabs(value) + error.arithmetic);
}

size_t BinOf(double error) {
  constexpr int kLast = TrialResult::kBins - 1;
  if (error > 1) return 0;
  if (error == 0) return kLast;
  int exponent = 0;  // error = fraction * 2^exponent, 1/2 <= fraction < 1
  const double fraction = std::frexp(error, &exponent);
  return static_cast<size_t>(std::min(kLast, (fraction == 0.5 ? 2 : 1) - exponent));
}

std::string OperandName(const TrialKernel& kernel, size_t operand) {
  const size_t inputs = kernel.problem->inputs.size();
  if (operand < inputs) return absl::StrCat("input ", kernel.op->input_names[operand]);
  return operand < inputs + kernel.problem->outputs.size() ? "the output" : "the scratch memory";
}

}  // namespace

// Where the operands of a launch lie: inputs, the output, scratch. Everything else between the
// memory's image and its end is band.
struct Trial::Placement {
  std::vector<size_t> offsets;  // in the image, by operand
  std::vector<size_t> sizes;
  std::vector<size_t> order;  // of operands, by address
  size_t begin = 0;           // of the image in the memory
  size_t end = 0;             // of the image

  size_t EndOf(size_t operand) const { return offsets[operand] + sizes[operand]; }
};

// Counts what a comparison of some elements finds.
struct Trial::Tally {
  std::array<int64_t, TrialResult::kBins> histogram = {};
  double max_error = 0;
  double max_absolute_error = 0;
  double max_relative_error = 0;
  int64_t first_wrong = -1;  // in expected_

  void Add(const Tally& other) {
    for (size_t i = 0; i < histogram.size(); ++i) histogram[i] += other.histogram[i];
    max_error = std::max(max_error, other.max_error);
    max_absolute_error = std::max(max_absolute_error, other.max_absolute_error);
    max_relative_error = std::max(max_relative_error, other.max_relative_error);
    if (other.first_wrong >= 0 && (first_wrong < 0 || other.first_wrong < first_wrong))
      first_wrong = other.first_wrong;
  }
};

Trial::Trial(const Site& site, TrialKernel kernel)
    : site_(site), kernel_(std::move(kernel)), cases_(kernel_.op->cases()), random_(site.secret) {
  WARPCALL_CHECK(kernel_.op->definition != nullptr && kernel_.problem->outputs.size() == 1,
                 kernel_.op->name, kernel_.problem->outputs.size());
}

// The op's own cases have these kinds, and its bounds hold for them. Then quarters of an input are
// of several kinds, and each of them leads once: whoever looks at the first values learns nothing
// of others.
std::vector<Trial::Kind> Trial::Kinds() const {
  const DataType type = kernel_.problem->inputs[0].data_type;
  const auto is_tried = [&](Fill fill) {
    return !kernel_.finite_inputs || (fill != Fill::kSpecial && fill != Fill::kPatterns);
  };
  std::vector<Kind> kinds;
  std::vector<Fill> quarters;
  for (const Case& known : cases_.cases) {
    Kind kind = {FillName(known.fill), {known.fill}, known.later_fills};
    if (!known.IsFor(type) || !is_tried(known.fill) ||
        !absl::c_all_of(known.later_fills, is_tried) || absl::c_linear_search(kinds, kind))
      continue;
    if (kind.later_fills.empty() && quarters.size() < kQuarters &&
        !absl::c_linear_search(quarters, known.fill))
      quarters.push_back(known.fill);
    kinds.push_back(std::move(kind));
  }
  for (size_t i = 0; quarters.size() > 1 && i < quarters.size(); ++i) {
    kinds.push_back({"mixed", quarters, {}});
    std::rotate(quarters.begin(), quarters.begin() + 1, quarters.end());
  }
  return kinds;
}

absl::StatusOr<TrialResult> Trial::Run() {
  RETURN_IF_ERROR(Prepare());
  for (const Kind& kind : Kinds()) {
    kind_ = kind.name;
    FillInputs(kind);
    for (int run = 0; run < 2 && !failed(); ++run) {
      // The first of each kind where the launch before it found another kind's inputs; the second
      // elsewhere.
      if (run > 0) Move();
      const Placement placement = Place();
      RETURN_IF_ERROR(Launch(placement, NextRemains()));
      if (failed()) break;
      if (run == 0) Expect();
      Compare();
      if (!failed() && run == 0 && kind == Kind{FillName(Fill::kNormal), {Fill::kNormal}, {}})
        RETURN_IF_ERROR(CompareWithOurs(placement));
      if (run == 0) CopyBytes(output_.data(), output_.size(), first_.data(), site_.pool);
    }
    if (!failed() && kernel_.deterministic &&
        !AreEqual(first_.data(), output_.data(), output_.size(), site_.pool)) {
      const size_t bytes = ElementBytes(kernel_.problem->outputs[0].data_type);
      const auto at = static_cast<int64_t>(
          static_cast<size_t>(std::mismatch(first_.begin(), first_.end(), output_.begin()).first -
                              first_.begin()) /
          bytes);
      Fail(Finding::kNondeterministic, absl::StrCat("two launches on the same inputs differ at [",
                                                    absl::StrJoin(IndexOf(at), ", "), "]"));
    }
    if (failed()) break;
    others_.resize(output_.size());
    CopyBytes(output_.data(), output_.size(), others_.data(), site_.pool);
  }
  return std::move(result_);
}

absl::Status Trial::Prepare() {
  const size_t bytes = Aligned(Place().end) + kShifts * kOperandAlignmentBytes;
  absl::StatusOr<Buffer> guarded = site_.device->AllocateGuarded(bytes);
  if (guarded.ok()) {
    memory_ = *std::move(guarded);
    is_guarded_ = at_the_end_ = true;
  } else {
    ASSIGN_OR_RETURN(memory_, site_.stream->AllocateMemory(bytes));
  }
  // Every launch copies all of it there and back.
  ASSIGN_OR_RETURN(before_, site_.device->AllocateStaging(bytes));
  ASSIGN_OR_RETURN(after_, site_.device->AllocateStaging(bytes));
  for (const TensorSpec& input : kernel_.problem->inputs) inputs_.emplace_back(input.bytes());
  output_.resize(kernel_.problem->outputs[0].bytes());
  first_.resize(output_.size());
  if (kernel_.ours == nullptr || !IsSampled()) return absl::OkStatus();
  ASSIGN_OR_RETURN(ours_, site_.stream->AllocateMemory(output_.size()));
  ASSIGN_OR_RETURN(ours_workspace_,
                   site_.stream->AllocateMemory(kernel_.ours->traits().workspace_bytes));
  return absl::OkStatus();
}

bool Trial::IsSampled() const {
  const Problem& problem = *kernel_.problem;
  return problem.outputs[0].elements() > kElementsMax ||
         kernel_.op->work(problem).flops > kFlopsMax;
}

// Where the memory is guarded, an input ends with it every other time, each in its turn.
void Trial::Move() {
  shift_ = (shift_ + 1 + Random() % kShifts) % (kShifts + 1);
  if (!is_guarded_) return;
  at_the_end_ = !at_the_end_;
  if (at_the_end_) last_input_ = (last_input_ + 1) % kernel_.problem->inputs.size();
}

Trial::Placement Trial::Place() const {
  Placement placement;
  for (const TensorSpec& input : kernel_.problem->inputs) placement.sizes.push_back(input.bytes());
  placement.sizes.push_back(kernel_.problem->outputs[0].bytes());
  placement.sizes.push_back(kernel_.plan->traits().workspace_bytes);
  placement.offsets.resize(placement.sizes.size());
  for (size_t i = 0; i < placement.sizes.size(); ++i)
    if (i != last_input_) placement.order.push_back(i);
  placement.order.push_back(last_input_);
  size_t at = kBandBytes + shift_ * kOperandAlignmentBytes;
  for (const size_t operand : placement.order) {
    placement.offsets[operand] = at;
    at = Aligned(at + placement.sizes[operand] + kBandBytes);
  }
  const size_t end = placement.EndOf(last_input_);
  placement.end = at_the_end_ ? Aligned(end) : end + kBandBytes;
  placement.begin = at_the_end_ ? memory_.bytes() - placement.end : 0;
  return placement;
}

void Trial::FillInputs(const Kind& kind) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const TensorSpec& spec = kernel_.problem->inputs[i];
    char* const data = inputs_[i].data();
    const size_t later = i - 1;  // of no use for the first
    if (i > 0 && later < kind.later_fills.size()) {
      FillInput(spec, Filling{kind.later_fills[later], Random()}, data, *site_.pool);
    } else if (kind.quarters.size() == 1) {
      FillInput(spec, Filling{kind.quarters[0], Random()}, data, *site_.pool);
    } else {
      FillQuarters(spec, kind.quarters, data);
    }
  }
}

void Trial::FillQuarters(const TensorSpec& spec, absl::Span<const Fill> quarters, char* data) {
  const auto parts = static_cast<int64_t>(quarters.size());
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = spec.elements() * part / parts;
    const int64_t end = spec.elements() * (part + 1) / parts;
    FillInput({spec.data_type, {end - begin}},
              Filling{quarters[static_cast<size_t>(part)], Random()},
              data + static_cast<size_t>(begin) * ElementBytes(spec.data_type), *site_.pool);
  }
}

// Every kind comes once before one comes again.
Trial::Remains Trial::NextRemains() {
  if (deck_.empty()) {
    deck_ = {Remains::kZero, Remains::kNan, Remains::kPattern, Remains::kOthersOutput};
    std::shuffle(deck_.begin(), deck_.end(), random_);
  }
  size_t next = deck_.size() - 1;
  // There is no other output before the first kind has passed.
  if (deck_[next] == Remains::kOthersOutput && others_.empty() && next > 0)
    std::swap(deck_[next], deck_[next - 1]);
  const Remains remains = deck_[next];
  deck_.pop_back();
  return remains == Remains::kOthersOutput && others_.empty() ? Remains::kNan : remains;
}

void Trial::WriteRemains(Remains remains, char* data, size_t bytes) {
  const DataType type = kernel_.problem->outputs[0].data_type;
  switch (remains) {
    case Remains::kZero:
      std::memset(data, 0, bytes);
      return;
    case Remains::kPattern:
      std::memset(data, kPatternByte, bytes);
      return;
    case Remains::kOthersOutput:
      if (bytes == others_.size()) {
        CopyBytes(others_.data(), bytes, data, site_.pool);
        return;
      }
      FillRandom(random_, data, bytes);  // scratch
      return;
    case Remains::kNan:
      break;
  }
  const uint32_t nan = NanOf(type);
  const size_t element = ElementBytes(type);
  const auto elements = static_cast<int64_t>(bytes / element);
  site_.pool->ParallelFor(elements, kElementsTogether, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(data + static_cast<size_t>(i) * element, &nan, element);
  });
}

void Trial::WriteImage(const Placement& placement, Remains remains) {
  char* const image = static_cast<char*>(before_.data());
  size_t band = 0;
  for (const size_t operand : placement.order) {
    FillRandom(random_, image + band, placement.offsets[operand] - band);
    band = placement.EndOf(operand);
  }
  FillRandom(random_, image + band, placement.end - band);
  for (size_t i = 0; i < inputs_.size(); ++i)
    CopyBytes(inputs_[i].data(), inputs_[i].size(), image + placement.offsets[i], site_.pool);
  const size_t output = inputs_.size();
  WriteRemains(remains, image + placement.offsets[output], placement.sizes[output]);
  WriteRemains(remains, image + placement.offsets[output + 1], placement.sizes[output + 1]);
}

absl::Status Trial::Launch(const Placement& placement, Remains remains) {
  WriteImage(placement, remains);
  Stream* const stream = site_.stream;
  char* const base = static_cast<char*>(memory_.data()) + placement.begin;
  const size_t bytes = placement.end;
  RETURN_IF_ERROR(inspect::RunPhase(stream, Milestone::kInputsReady, [&] {
    return stream->CopyToDevice(base, before_.data(), bytes);
  }));
  Operands operands;
  const size_t output = inputs_.size();
  for (size_t i = 0; i <= output; ++i) {
    char* const data = placement.sizes[i] == 0 ? nullptr : base + placement.offsets[i];
    if (i < output)
      operands.inputs.push_back(data);
    else
      operands.outputs.push_back(data);
  }
  void* const scratch =
      placement.sizes[output + 1] == 0 ? nullptr : base + placement.offsets[output + 1];
  if (site_.watch != nullptr) site_.watch->Begin(site_.launch_time_max);
  const absl::Status ran = inspect::RunPhase(stream, Milestone::kKernelDone, [&] {
    return kernel_.plan->Enqueue(operands,
                                 {.stream = stream->native_handle(), .workspace = scratch});
  });
  if (site_.watch != nullptr) site_.watch->End();
  if (!ran.ok()) {
    Fail(Finding::kRuntimeError,
         at_the_end_ ? absl::StrCat(ran.message(), "; ", OperandName(kernel_, last_input_),
                                    " lay at the end of memory: nothing behind it can be read")
                     : std::string(ran.message()));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(inspect::RunPhase(stream, Milestone::kOutputsReady, [&] {
    return stream->CopyToStaging(after_.data(), base, bytes);
  }));
  JudgeImage(placement);
  const char* const written = static_cast<const char*>(after_.data()) + placement.offsets[output];
  CopyBytes(written, output_.size(), output_.data(), site_.pool);
  return absl::OkStatus();
}

// Nothing but the output and scratch may have changed.
void Trial::JudgeImage(const Placement& placement) {
  const char* const before = static_cast<const char*>(before_.data());
  const char* const after = static_cast<const char*>(after_.data());
  const auto changed = [&](size_t begin, size_t end) -> std::optional<size_t> {
    if (AreEqual(before + begin, after + begin, end - begin, site_.pool)) return std::nullopt;
    return static_cast<size_t>(std::mismatch(before + begin, before + end, after + begin).first -
                               before);
  };
  std::optional<size_t> previous;  // the last operand that is not empty
  size_t from = 0;
  for (const size_t operand : placement.order) {
    if (placement.sizes[operand] == 0) continue;
    const size_t begin = placement.offsets[operand];
    if (const auto at = changed(from, begin); at.has_value())
      return FailOutside(placement, *at, previous, operand);
    from = placement.EndOf(operand);
    if (operand < inputs_.size())
      if (const auto at = changed(begin, from); at.has_value())
        return Fail(Finding::kInputModified, absl::StrCat("it wrote to byte ", *at - begin, " of ",
                                                          OperandName(kernel_, operand)));
    previous = operand;
  }
  if (const auto at = changed(from, placement.end); at.has_value())
    FailOutside(placement, *at, previous, std::nullopt);
}

// It wrote to `at`, which lies between two operands: which is nearer?
void Trial::FailOutside(const Placement& placement, size_t at, std::optional<size_t> before,
                        std::optional<size_t> behind) {
  const size_t past = before.has_value() ? at - placement.EndOf(*before) + 1 : 0;
  const size_t ahead = behind.has_value() ? placement.offsets[*behind] - at : 0;
  const bool is_past = !behind.has_value() || (before.has_value() && past <= ahead);
  Fail(Finding::kOutOfBounds,
       is_past ? absl::StrCat("it wrote ", past, " bytes past the end of ",
                              OperandName(kernel_, before.value_or(0)))
               : absl::StrCat("it wrote ", ahead, " bytes before the beginning of ",
                              OperandName(kernel_, behind.value_or(0))));
}

void Trial::Expect() {
  const Problem& problem = *kernel_.problem;
  Operands inputs;
  for (const std::vector<char>& input : inputs_) inputs.inputs.push_back(input.data());
  const TruthSource source{*kernel_.op, cases_, problem, inputs};
  if (!IsSampled()) {
    FindTruth(source, *site_.pool, &expected_);
    return;
  }
  const auto slices = static_cast<uint64_t>(kernel_.op->definition->slices(problem));
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < kSampledSlices; ++i)
    chosen.push_back(static_cast<int64_t>(Random() % slices));
  absl::c_sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  std::vector<SliceTruth> truths(chosen.size());
  site_.pool->ParallelFor(static_cast<int64_t>(chosen.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      truths[i] = SliceTruthOf(source, chosen[i]);
  });
  expected_ = {};
  at_.clear();
  for (const SliceTruth& truth : truths) {
    for (int64_t i = 0; i < truth.slice.count; ++i)
      at_.push_back(truth.slice.first + i * truth.slice.stride);
    absl::c_copy(truth.values, std::back_inserter(expected_.values));
    absl::c_copy(truth.errors, std::back_inserter(expected_.errors));
  }
}

Trial::Tally Trial::TallyOf(int64_t begin, int64_t end) const {
  const DataType type = kernel_.problem->outputs[0].data_type;
  const Allowance none;
  Tally tally;
  DispatchDataType(type, [&]<typename T>(T) {
    for (int64_t i = begin; i < end; ++i) {
      const auto index = static_cast<size_t>(i);
      const int64_t at = at_.empty() ? i : at_[index];
      const double got = ToFloat(reinterpret_cast<const T*>(output_.data())[at]);
      const double expected = expected_.values[index];
      const double error = OfBound(got, expected, expected_.errors[index], {type, none});
      ++tally.histogram[BinOf(error)];
      tally.max_error = std::max(tally.max_error, error);
      if (error > 1 && tally.first_wrong < 0) tally.first_wrong = i;
      if (!std::isfinite(got) || !std::isfinite(expected)) continue;
      const double distance = std::fabs(got - expected);
      tally.max_absolute_error = std::max(tally.max_absolute_error, distance);
      if (expected != 0)
        tally.max_relative_error =
            std::max(tally.max_relative_error, distance / std::fabs(expected));
    }
  });
  return tally;
}

void Trial::Compare() {
  Tally all;
  absl::Mutex mutex;
  const auto elements = static_cast<int64_t>(expected_.values.size());
  site_.pool->ParallelFor(elements, kElementsTogether, [&](int64_t begin, int64_t end) {
    const Tally tally = TallyOf(begin, end);
    absl::MutexLock lock(&mutex);
    all.Add(tally);
  });
  result_.checked_elements += elements;
  for (size_t i = 0; i < all.histogram.size(); ++i) result_.histogram[i] += all.histogram[i];
  result_.max_absolute_error = std::max(result_.max_absolute_error, all.max_absolute_error);
  result_.max_relative_error = std::max(result_.max_relative_error, all.max_relative_error);
  if (all.max_error > result_.max_error) {
    result_.max_error = all.max_error;
    result_.fill = kind_;
  }
  if (all.first_wrong < 0) return;
  const DataType type = kernel_.problem->outputs[0].data_type;
  const auto wrong = static_cast<size_t>(all.first_wrong);
  const int64_t at = at_.empty() ? all.first_wrong : at_[wrong];
  const double expected = expected_.values[wrong];
  result_.first = Mismatch{IndexOf(at), ElementOf(type, output_.data(), at), expected,
                           BoundOf(expected, expected_.errors[wrong], type)};
  Fail(Finding::kIncorrect,
       absl::StrCat("[", absl::StrJoin(result_.first->index, ", "), "] is ", result_.first->got,
                    ", expected ", result_.first->expected));
}

absl::Status Trial::CompareWithOurs(const Placement& placement) {
  if (ours_.data() == nullptr) return absl::OkStatus();
  const DataType type = kernel_.problem->outputs[0].data_type;
  double bound = 0;
  for (size_t i = 0; i < expected_.values.size(); ++i)
    bound = std::max(bound, BoundOf(expected_.values[i], expected_.errors[i], type));
  if (!std::isfinite(bound)) return absl::OkStatus();
  Stream* const stream = site_.stream;
  Operands operands;
  for (size_t i = 0; i < inputs_.size(); ++i)
    operands.inputs.push_back(static_cast<char*>(memory_.data()) + placement.begin +
                              placement.offsets[i]);
  operands.outputs.push_back(ours_.data());
  RETURN_IF_ERROR(inspect::RunPhase(stream, Milestone::kKernelDone, [&] {
    return kernel_.ours->Enqueue(
        operands, {.stream = stream->native_handle(), .workspace = ours_workspace_.data()});
  }));
  std::vector<char> ours(output_.size());
  RETURN_IF_ERROR(inspect::RunPhase(stream, Milestone::kOutputsReady, [&] {
    return stream->CopyToStaging(ours.data(), ours_.data(), ours.size());
  }));
  for (int64_t at = 0; at < kernel_.problem->outputs[0].elements(); ++at) {
    const double got = ElementOf(type, output_.data(), at);
    const double expected = ElementOf(type, ours.data(), at);
    if (std::fabs(got - expected) <= 2 * bound) continue;
    result_.first = Mismatch{IndexOf(at), got, expected, 2 * bound};
    Fail(Finding::kIncorrect,
         absl::StrCat("[", absl::StrJoin(result_.first->index, ", "), "] is ", got,
                      ", and the server's own implementation gives ", expected));
    break;
  }
  return absl::OkStatus();
}

void Trial::Fail(Finding finding, std::string detail) {
  result_.finding = finding;
  result_.detail = std::move(detail);
  result_.fill = kind_;
}

std::vector<int64_t> Trial::IndexOf(int64_t element) const {
  const Dims& dims = kernel_.problem->outputs[0].dims;
  std::vector<int64_t> index(dims.size());
  for (size_t i = dims.size(); i-- > 0; element /= dims[i]) index[i] = element % dims[i];
  return index;
}

}  // namespace warpcall::judge
