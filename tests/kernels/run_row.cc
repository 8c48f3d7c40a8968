#include "tests/kernels/run_row.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"
#include "proto/common/status_macros.h"

namespace warpcall::testing {
namespace {

constexpr int kThreads = 4;

// Operands may be aligned to kOperandAlignmentBytes and no more: at an odd multiple of it.
constexpr std::align_val_t kAlignment{2 * kOperandAlignmentBytes};

// One launch: its threads, and the bytes that fill its outputs and workspace before it.
struct Attempt {
  cpu::ThreadPool& pool;
  uint8_t poison;
};

absl::StatusOr<std::vector<Memory>> RunOnce(const Plan& plan, const Problem& problem,
                                            absl::Span<const Memory> inputs,
                                            const Attempt& attempt) {
  Operands operands = OperandsOf(inputs);
  std::vector<Memory> outputs;
  for (const TensorSpec& spec : problem.outputs) {
    outputs.emplace_back(spec.bytes());
    outputs.back().Poison(attempt.poison);
    operands.outputs.push_back(outputs.back().data());
  }
  Memory workspace(plan.traits().workspace_bytes);
  workspace.Poison(attempt.poison);
  RETURN_IF_ERROR(plan.Enqueue(operands, {.stream = &attempt.pool, .workspace = workspace.data()}));
  for (const Memory& input : inputs) RETURN_IF_ERROR(input.CheckBands("an input"));
  for (const Memory& output : outputs) RETURN_IF_ERROR(output.CheckBands("an output"));
  RETURN_IF_ERROR(workspace.CheckBands("the workspace"));
  return outputs;
}

std::vector<std::string> CopiesOf(absl::Span<const Memory> memories) {
  std::vector<std::string> copies;
  for (const Memory& memory : memories)
    copies.emplace_back(static_cast<const char*>(memory.data()), memory.bytes());
  return copies;
}

}  // namespace

cpu::ThreadPool& TestPool() {
  static auto* const pool = new cpu::ThreadPool(kThreads);
  return *pool;
}

Operands OperandsOf(absl::Span<const Memory> inputs) {
  Operands operands;
  for (const Memory& input : inputs) operands.inputs.push_back(input.data());
  return operands;
}

Memory::Memory(size_t bytes) : data_(nullptr), bytes_(bytes) {
  if (bytes == 0) return;
  auto* const begin = static_cast<uint8_t*>(::operator new(bytes + 2 * kBandBytes, kAlignment));
  data_ = begin + kBandBytes;
  std::memset(begin, kBandPattern, kBandBytes);
  std::memset(data_ + bytes, kBandPattern, kBandBytes);
  ASAN_POISON_MEMORY_REGION(begin, kBandBytes);
  ASAN_POISON_MEMORY_REGION(data_ + bytes, kBandBytes);
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  ASAN_UNPOISON_MEMORY_REGION(data_ - kBandBytes, bytes_ + 2 * kBandBytes);
  ::operator delete(data_ - kBandBytes, kAlignment);
}

void Memory::Poison(uint8_t byte) {
  if (bytes_ > 0) std::memset(data_, byte, bytes_);
}

absl::Status Memory::CheckBands(absl::string_view what) const {
  if (data_ == nullptr) return absl::OkStatus();
  ASAN_UNPOISON_MEMORY_REGION(data_ - kBandBytes, bytes_ + 2 * kBandBytes);
  absl::Status status = CheckBand(data_ - kBandBytes, "before", what);
  status.Update(CheckBand(data_ + bytes_, "behind", what));
  ASAN_POISON_MEMORY_REGION(data_ - kBandBytes, kBandBytes);
  ASAN_POISON_MEMORY_REGION(data_ + bytes_, kBandBytes);
  return status;
}

absl::Status CheckBand(const uint8_t* band, absl::string_view side, absl::string_view what) {
  const auto* const wrong =
      std::find_if(band, band + kBandBytes, [](uint8_t byte) { return byte != kBandPattern; });
  if (wrong == band + kBandBytes) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("wrote byte ", wrong - band, " of the ", kBandBytes, " ", side, " ", what));
}

absl::Status CheckSame(const void* actual, const void* expected, size_t bytes,
                       absl::string_view what) {
  if (bytes == 0 || std::memcmp(actual, expected, bytes) == 0) return absl::OkStatus();
  const auto* const a = static_cast<const uint8_t*>(actual);
  const auto* const e = static_cast<const uint8_t*>(expected);
  size_t i = 0;
  while (a[i] == e[i]) ++i;
  return absl::InternalError(
      absl::StrCat(what, ": byte ", i, " of ", bytes, " is ", a[i], ", was ", e[i]));
}

const DeviceProperties& TestDeviceProperties() {
  static const auto* const properties = [] {
    auto* created = new DeviceProperties;
    created->name = "cpu";
    created->multiprocessors = kThreads;
    return created;
  }();
  return *properties;
}

absl::Status RunOnCpu(const CpuRun& run, const Implementation& row, const Problem& problem,
                      const Operands& operands) {
  ASSIGN_OR_RETURN(const PlanPtr plan, row.plan(problem, {.device = run.device}));
  Memory workspace(plan->traits().workspace_bytes);
  workspace.Poison(0);
  return plan->Enqueue(operands,
                       {.stream = run.pool, .workspace = workspace.data(), .stop = run.stop});
}

absl::StatusOr<std::vector<Memory>> RunRow(const RowToRun& to_run, const Problem& problem,
                                           absl::Span<const Memory> inputs, uint8_t poison) {
  if (to_run.row.device_kind == DeviceKind::kCuda)
    return RunRowOnGpu(to_run, problem, inputs, poison);
  static auto* const one_thread = new cpu::ThreadPool(1);
  const std::vector<std::string> before = CopiesOf(inputs);
  ASSIGN_OR_RETURN(const PlanPtr plan, to_run.row.plan(problem, {.device = &TestDeviceProperties(),
                                                                 .variant = to_run.variant}));
  ASSIGN_OR_RETURN(std::vector<Memory> outputs,
                   RunOnce(*plan, problem, inputs, {TestPool(), poison}));
  const uint8_t other_poison = static_cast<uint8_t>(~poison);
  ASSIGN_OR_RETURN(const std::vector<Memory> again,
                   RunOnce(*plan, problem, inputs, {*one_thread, other_poison}));
  for (size_t i = 0; i < inputs.size(); ++i)
    RETURN_IF_ERROR(CheckSame(inputs[i].data(), before[i].data(), before[i].size(), "an input"));
  for (size_t i = 0; i < outputs.size(); ++i)
    RETURN_IF_ERROR(CheckSame(again[i].data(), outputs[i].data(), outputs[i].bytes(),
                              "an output, computed again by one thread"));
  return outputs;
}

const Registry& FullRegistry() {
  static const Registry* const registry = [] {
    auto* created = new Registry;
    AddGpuRows(created);
    AddCpuKernels(created);
    return created;
  }();
  return *registry;
}

const Implementation& ReferenceOf(const Kernel& kernel) {
  // `kernel` may come from a registry without the rows of GPUs, which has other ids.
  const Registry& registry = FullRegistry();
  const Kernel& full = **registry.Find(kernel.op->name);
  return registry.rows()[static_cast<size_t>(full.rows.back())].implementation;
}

float ValueAt(const void* data, DataType type, int64_t i) {
  return DispatchDataType(type,
                          [&]<typename T>(T) { return ToFloat(static_cast<const T*>(data)[i]); });
}

void SetValue(void* data, DataType type, int64_t i, float value) {
  DispatchDataType(type, [&]<typename T>(T) { static_cast<T*>(data)[i] = FromFloat<T>(value); });
}

}  // namespace warpcall::testing
