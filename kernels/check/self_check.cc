#include "kernels/check/self_check.h"

#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/check/compare.h"
#include "kernels/check/fill.h"
#include "kernels/check/truth.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

// The data are the same at every start: a verdict does not change by chance.
constexpr uint64_t kSeed = 0x5EEDu;
// Upper limit per data type. Libraries search up to 0.1 s for each problem, and a compiler takes 20
// to 60 ms: six implementations that compile took 3.4 s of an H200's start with a limit of four.
constexpr int kPreparedMax = 2;
constexpr size_t kTrialsBytesMax = size_t{512} << 20;
constexpr size_t kTruthBytes = sizeof(double) + sizeof(ElementError);
// Outputs hold this before a row runs: NaN in every type, or a number where NaN may be right.
constexpr uint8_t kPoisonNan = 0xFF;
constexpr uint8_t kPoisonFinite = 0x42;

// Aligned as operands are; null without bytes.
class HostMemory {
 public:
  explicit HostMemory(size_t bytes)
      : data_(bytes == 0 ? nullptr : ::operator new(bytes, kAlignment)), bytes_(bytes) {}
  ~HostMemory() {
    if (data_ != nullptr) ::operator delete(data_, kAlignment);
  }
  HostMemory(HostMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  HostMemory& operator=(HostMemory&&) = delete;

  void* data() const { return data_; }
  void Fill(uint8_t byte) {
    if (bytes_ > 0) std::memset(data_, byte, bytes_);
  }

 private:
  static constexpr std::align_val_t kAlignment{kOperandAlignmentBytes};

  void* data_;
  size_t bytes_;
};

std::vector<HostMemory> Allocate(absl::Span<const TensorSpec> specs) {
  std::vector<HostMemory> memory;
  for (const TensorSpec& spec : specs) memory.emplace_back(spec.bytes());
  return memory;
}

Operands OperandsOf(const std::vector<HostMemory>& inputs, const std::vector<HostMemory>& outputs) {
  Operands operands;
  for (const HostMemory& input : inputs) operands.inputs.push_back(input.data());
  for (const HostMemory& output : outputs) operands.outputs.push_back(output.data());
  return operands;
}

absl::StatusOr<Problem> ProblemOf(const Op& op, const Case& tried, DataType type) {
  std::vector<TensorSpec> specs;
  for (const Dims& dims : tried.shapes) specs.push_back({type, dims});
  return MakeProblem(op, specs, tried.attributes);
}

size_t BytesOf(const Problem& problem) {
  size_t bytes = 0;
  for (const TensorSpec& spec : problem.inputs) bytes += spec.bytes();
  return bytes;
}

absl::Status About(const absl::Status& status, const Case& tried, DataType type) {
  absl::Status about(status.code(), absl::StrCat(status.message(), " (", DataTypeName(type),
                                                 ", case ", tried.name, ")"));
  status.ForEachPayload([&about](absl::string_view url, const absl::Cord& payload) {
    about.SetPayload(url, payload);
  });
  return about;
}

}  // namespace

struct SelfCheck::Trial {
  std::vector<HostMemory> inputs;
  Truth truth;
};

SelfCheck::SelfCheck(const Registry& registry, const DeviceProperties& device, Options options)
    : registry_(registry), device_(device), options_(std::move(options)) {}

SelfCheck::~SelfCheck() = default;

const OpCases& SelfCheck::CasesOf(const Op& op) {
  const auto [found, added] = cases_.try_emplace(&op);
  if (added) found->second = op.cases();
  return found->second;
}

CheckResult SelfCheck::Check(const Row& row) {
  const Op& op = *registry_.kernels()[static_cast<size_t>(row.kernel)].op;
  WARPCALL_DCHECK(op.cases != nullptr && op.definition != nullptr, op.name);
  CheckResult result;
  std::string refusal = "it takes no data type";
  for (const DataType type : row.implementation.data_types) {
    result.status = CheckType(row, type, &result);
    if (absl::IsUnimplemented(result.status)) {
      refusal = std::string(result.status.message());
      continue;  // a library's support depends on the processor
    }
    if (!result.status.ok()) return result;
    result.data_types.push_back(type);
  }
  result.status = result.cases > 0 ? absl::OkStatus() : absl::UnimplementedError(refusal);
  return result;
}

// UNIMPLEMENTED: the row takes nothing of `type`.
absl::Status SelfCheck::CheckType(const Row& row, DataType type, CheckResult* result) {
  const Op& op = *registry_.kernels()[static_cast<size_t>(row.kernel)].op;
  const OpCases& cases = CasesOf(op);
  const int before = result->cases;
  absl::Status refusal = absl::UnimplementedError("its op has no cases");
  const auto check = [&](const Case& tried) -> absl::Status {
    if (!tried.IsFor(type)) return absl::OkStatus();
    absl::Status status = CheckCase(row, tried, type, result);
    if (!absl::IsUnimplemented(status)) return status;
    refusal = std::move(status);
    return absl::OkStatus();
  };
  const bool few = options_.depth == CheckDepth::kQuick && row.implementation.slow_to_plan;
  for (const Case& tried : cases.quick) {
    if (few && result->cases >= before + kPreparedMax) break;
    RETURN_IF_ERROR(check(tried));
  }
  if (options_.depth == CheckDepth::kQuick && result->cases > before) return absl::OkStatus();
  std::vector<std::pair<int64_t, const Case*>> others;  // smallest first
  for (const Case& other : cases.cases) {
    if (!other.IsFor(type)) continue;
    ASSIGN_OR_RETURN(const Problem problem, ProblemOf(op, other, type));
    const Work work = op.work(problem);
    if (problem.outputs[0].elements() > 0)
      others.emplace_back(SaturatingAdd(work.bytes, work.flops), &other);
  }
  absl::c_stable_sort(others, [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [size, other] : others) {
    if (options_.depth == CheckDepth::kQuick && result->cases > before) break;
    RETURN_IF_ERROR(check(*other));
  }
  return result->cases > before ? absl::OkStatus() : refusal;
}

absl::Status SelfCheck::CheckCase(const Row& row, const Case& tried, DataType type,
                                  CheckResult* result) {
  const Op& op = *registry_.kernels()[static_cast<size_t>(row.kernel)].op;
  ASSIGN_OR_RETURN(const Problem problem, ProblemOf(op, tried, type));
  RETURN_IF_ERROR(Registry::CheckRuns(row, problem, device_));
  const std::shared_ptr<const Trial> trial = TrialOf(op, tried, problem);
  std::vector<HostMemory> outputs = Allocate(problem.outputs);
  for (HostMemory& output : outputs)
    output.Fill(tried.fill == Fill::kSpecial ? kPoisonFinite : kPoisonNan);
  const absl::Status ran =
      options_.run(row.implementation, problem, OperandsOf(trial->inputs, outputs));
  if (absl::IsUnimplemented(ran)) return ran;  // found out by preparing
  ++result->cases;
  if (!ran.ok()) return About(ran, tried, type);
  const Disagreement found = Compare(trial->truth, outputs[0].data(),
                                     AllowanceFor(CasesOf(op), row.implementation.name, type));
  if (found.wrong == 0) return absl::OkStatus();
  const std::pair<std::string, std::string> lines =
      absl::StrSplit(found.text, absl::MaxSplits('\n', 1));
  return About(absl::InternalError(absl::StrCat("wrong: ", lines.first)), tried, type);
}

std::shared_ptr<const SelfCheck::Trial> SelfCheck::TrialOf(const Op& op, const Case& tried,
                                                           const Problem& problem) {
  const auto key = std::make_tuple(&tried, problem.inputs[0].data_type);
  if (const auto known = trials_.find(key); known != trials_.end()) return known->second;
  auto trial = std::make_shared<Trial>();
  trial->inputs = Allocate(problem.inputs);
  for (size_t i = 0; i < trial->inputs.size(); ++i)
    FillInput(problem.inputs[i], tried.FillOf(i), kSeed + i, trial->inputs[i].data());
  trial->truth = TruthOf({op, CasesOf(op), problem, OperandsOf(trial->inputs, {})}, *options_.pool);
  const size_t bytes = BytesOf(problem) + trial->truth.values.size() * kTruthBytes;
  if (trials_bytes_ + bytes > kTrialsBytesMax) return trial;
  trials_bytes_ += bytes;
  trials_.emplace(key, trial);
  return trial;
}

}  // namespace warpcall
