// Runs one implementation on memory of its own, for tests.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/op.h"
#include "kernels/registry.h"

namespace warpcall::testing {

// Memory of exactly `bytes` (so that AddressSanitizer sees the first byte past the end), aligned as
// operands are; null when `bytes` is 0.
class Memory {
 public:
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  Memory& operator=(Memory&&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  void Poison(uint8_t byte);

 private:
  void* data_;
  size_t bytes_;
};

// Of the CPU device that RunRow uses: more threads than most machines under test have cores, so
// that work is really shared out.
const DeviceProperties& TestDeviceProperties();

// Of the GPU that RunRow uses; null where there is none, or the build has no code for one.
const DeviceProperties* TestGpuProperties();

// The threads of the CPU device that RunRow uses.
cpu::ThreadPool& TestPool();

Operands OperandsOf(absl::Span<const Memory> inputs);

// A row as it chooses, or one of its variants.
struct RowToRun {
  RowToRun(const Implementation& row_in, int variant_in = kRowsChoice)
      : row(row_in), variant(variant_in) {}

  const Implementation& row;
  int variant;
};

// On the device that the row is for. Allocates outputs and workspace, fills both with `poison`,
// launches. One Memory per output.
absl::StatusOr<std::vector<Memory>> RunRow(const RowToRun& to_run, const Problem& problem,
                                           absl::Span<const Memory> inputs, uint8_t poison);

// Only for RunRow. REQUIRES: TestGpuProperties() is not null.
absl::StatusOr<std::vector<Memory>> RunRowOnGpu(const RowToRun& to_run, const Problem& problem,
                                                absl::Span<const Memory> inputs, uint8_t poison);

// Adds the rows of GPUs to a registry, in builds that have them.
void AddGpuRows(Registry* registry);

// The rows of the CPU.
const Registry& CpuRegistry();
// Everything that this build has.
const Registry& FullRegistry();

// The row that is the truth for `kernel`.
const Implementation& ReferenceOf(const Kernel& kernel);

// Element i of a tensor of `type`.
float ValueAt(const void* data, DataType type, int64_t i);
// Rounds to nearest, ties to even.
void SetValue(void* data, DataType type, int64_t i, float value);

}  // namespace warpcall::testing
