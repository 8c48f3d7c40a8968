// Runs one implementation on memory of its own, for tests.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/op.h"
#include "kernels/plan.h"
#include "kernels/registry.h"
#include "tests/cpu_kernels.h"

namespace warpcall::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Memory with a band of a pattern before and behind it, aligned as operands are and no better; null
// when `bytes` is 0. AddressSanitizer sees the first byte past either end.
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
  // INTERNAL, naming `what` and the byte, if a band was written to.
  absl::Status CheckBands(absl::string_view what) const;

 private:
  uint8_t* data_;
  size_t bytes_;
};

// Bands: their length, which equals the weakest alignment, and the byte that fills them.
inline constexpr size_t kBandBytes = kOperandAlignmentBytes;
inline constexpr uint8_t kBandPattern = 0xA5;

// OK if `bytes` bytes agree; otherwise INTERNAL, with `what` and the first difference.
absl::Status CheckSame(const void* actual, const void* expected, size_t bytes,
                       absl::string_view what);
// OK if all `bytes` of a band beside `what` still hold the pattern.
absl::Status CheckBand(const uint8_t* band, absl::string_view side, absl::string_view what);

// Properties of the CPU device that RunRow uses: more threads than most machines under test have
// cores, so that work is really shared out.
const DeviceProperties& TestDeviceProperties();

// Those of the GPU that RunRow uses; null where there is none, or the build has no code for one.
const DeviceProperties* TestGpuProperties();

// The threads of the CPU device that RunRow uses.
cpu::ThreadPool& TestPool();

Operands OperandsOf(absl::Span<const Memory> inputs);

// A row's own choice, or one of its variants.
struct RowToRun {
  RowToRun(const Implementation& row_in, int variant_in = kRowsChoice)
      : row(row_in), variant(variant_in) {}

  const Implementation& row;
  int variant;
};

// On the device that the row is for: fills outputs and workspace with `poison` and launches, then
// once more with outputs elsewhere, other poison and, on the CPU, another number of threads, on a
// GPU through a captured graph. One Memory per output. INTERNAL when the second result is not the
// first one bit for bit (so an element that is not written shows, whatever the poison), when a byte
// before or behind an operand or the workspace was written, or an input.
absl::StatusOr<std::vector<Memory>> RunRow(const RowToRun& to_run, const Problem& problem,
                                           absl::Span<const Memory> inputs, uint8_t poison);

// On the CPU, once: by a plan for `device`, in a poisoned workspace of its own.
struct CpuRun {
  cpu::ThreadPool* pool = nullptr;
  const DeviceProperties* device = &TestDeviceProperties();
  const StopFlag* stop = nullptr;
};
absl::Status RunOnCpu(const CpuRun& run, const Implementation& row, const Problem& problem,
                      const Operands& operands);

// Only for RunRow. REQUIRES: TestGpuProperties() is not null.
absl::StatusOr<std::vector<Memory>> RunRowOnGpu(const RowToRun& to_run, const Problem& problem,
                                                absl::Span<const Memory> inputs, uint8_t poison);

// Adds the rows of GPUs to a registry, in builds that have them.
void AddGpuRows(Registry* registry);

// Everything that this build has.
const Registry& FullRegistry();

// The row that is the truth for `kernel`.
const Implementation& ReferenceOf(const Kernel& kernel);

// Element i of a tensor of `type`.
float ValueAt(const void* data, DataType type, int64_t i);
// Rounds to nearest, ties to even.
void SetValue(void* data, DataType type, int64_t i, float value);

}  // namespace warpcall::testing
