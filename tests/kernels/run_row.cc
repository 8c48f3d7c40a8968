#include "tests/kernels/run_row.h"

#include <cstring>
#include <new>
#include <utility>

#include "kernels/common/dispatch.h"
#include "kernels/common/status_macros.h"
#include "kernels/variants.h"

namespace warpcall::testing {
namespace {

constexpr int kThreads = 4;
constexpr std::align_val_t kAlignment{kOperandAlignmentBytes};

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

Memory::Memory(size_t bytes)
    : data_(bytes == 0 ? nullptr : ::operator new(bytes, kAlignment)), bytes_(bytes) {}

Memory::~Memory() {
  if (data_ != nullptr) ::operator delete(data_, kAlignment);
}

void Memory::Poison(uint8_t byte) {
  if (bytes_ > 0) std::memset(data_, byte, bytes_);
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

absl::StatusOr<std::vector<Memory>> RunRow(const RowToRun& to_run, const Problem& problem,
                                           absl::Span<const Memory> inputs, uint8_t poison) {
  const Implementation& row = to_run.row;
  if (row.device_kind == DeviceKind::kCuda) return RunRowOnGpu(to_run, problem, inputs, poison);
  Operands operands = OperandsOf(inputs);
  std::vector<Memory> outputs;
  for (const TensorSpec& spec : problem.outputs) {
    outputs.emplace_back(spec.bytes());
    outputs.back().Poison(poison);
    operands.outputs.push_back(outputs.back().data());
  }
  Memory workspace(WorkspaceBytes(row, problem, TestDeviceProperties(), to_run.variant));
  workspace.Poison(poison);
  RETURN_IF_ERROR(row.launch(problem, operands,
                             {.stream = &TestPool(),
                              .device = &TestDeviceProperties(),
                              .workspace = workspace.data(),
                              .variant = to_run.variant}));
  return outputs;
}

const Registry& CpuRegistry() {
  static const Registry* const registry = [] {
    auto* created = new Registry;
    AddCpuKernels(created);
    return created;
  }();
  return *registry;
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
  const Registry& registry = FullRegistry();
  return registry.rows()[kernel.rows.back()].implementation;
}

float ValueAt(const void* data, DataType type, int64_t i) {
  return DispatchDataType(type,
                          [&]<typename T>(T) { return ToFloat(static_cast<const T*>(data)[i]); });
}

void SetValue(void* data, DataType type, int64_t i, float value) {
  DispatchDataType(type, [&]<typename T>(T) { static_cast<T*>(data)[i] = FromFloat<T>(value); });
}

}  // namespace warpcall::testing
