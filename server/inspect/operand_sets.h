// Copies of a problem's operands on a device. Launches take turns at them, so that none finds its
// data in a cache, as in a busy server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/op.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

// Upper bounds of all sets together, unless a single one is larger. Some CPU machines report more
// cache than one guest gets, and filling memory takes its time.
inline constexpr int64_t kSetsBytesMax = int64_t{1} << 30;
inline constexpr int64_t kCpuSetsBytesMax = int64_t{256} << 20;
inline constexpr int64_t kSetsMax = 64;

// Size of the last cache before memory; 0 if unknown.
int64_t CacheBytes(const DeviceProperties& device);

// Host memory, aligned as operands must be. RESOURCE_EXHAUSTED names the refused size.
absl::StatusOr<Buffer> AllocateHost(size_t bytes);

// The layout of one set: operands one after the other, aligned.
struct OperandLayout {
  explicit OperandLayout(const Problem& problem);

  // Null where a tensor has no elements.
  Operands At(char* base) const;

  absl::InlinedVector<int64_t, 3> offsets;  // inputs first; -1: no elements
  size_t input_count;
  int64_t bytes;  // INT64_MAX if it is more
};

// Number of sets that exceed 5 times a GPU's L2, or twice the CPU's last cache, within the bounds
// above and an eighth of the device's memory; at least 1.
int64_t SetsFor(int64_t set_bytes, const DeviceProperties& device);

// Elements [first, last) of a tensor.
struct ElementRange {
  int64_t first = 0;
  int64_t last = 0;
};

// Runs one round in which only the phase that ends at `end` has work, and waits for it.
absl::Status RunPhase(Stream* stream, Milestone end, absl::FunctionRef<absl::Status()> enqueue);

// Used by the stream's thread; destroyed before the stream.
class OperandSets {
 public:
  struct Plan {
    const Problem* problem = nullptr;
    uint64_t seed = 0;
    int64_t sets = 1;
    // Random elements of an input, which then repeat; for callers that need many at once.
    int64_t period = std::numeric_limits<int64_t>::max();
  };

  // All sets have equal inputs, N(0, 1) by the seed, and outputs of NaN. Creates fewer sets than
  // planned if the device runs out of memory.
  static absl::StatusOr<OperandSets> Create(const Plan& plan, const DeviceProperties& device,
                                            Stream* stream, cpu::ThreadPool* pool);

  int64_t size() const { return static_cast<int64_t>(sets_.size()); }
  const Operands& operator[](int64_t i) const { return sets_[i]; }
  // Returns the sets in turn, over all callers.
  const Operands& Next() { return sets_[next_++ % sets_.size()]; }

  // Inputs that the host can read.
  const Operands& host() const { return host_; }
  // Writes NaN into elements of output 0 of set 0.
  absl::Status Poison(absl::Span<const ElementRange> ranges);
  // Brings elements of output 0 of set 0 to host().outputs.
  absl::Status ReadOutput(absl::Span<const ElementRange> ranges);

  // For callers that renew a set and look at what became of it, in a phase of theirs: enqueues the
  // writing of its inputs, and of `remains` again and again into its outputs. Both are read from
  // the device's memory, or the host's.
  absl::Status EnqueueRenewal(int64_t set, absl::Span<const void* const> inputs,
                              absl::Span<const char> remains);
  absl::Status ReadOutputOf(int64_t set, void* host);
  // Device memory that lives as long as the sets, with the content of host memory unless it is
  // null.
  absl::StatusOr<char*> Keep(const void* host, size_t bytes);
  // The set that Next returns next.
  int64_t next() const { return static_cast<int64_t>(next_ % sets_.size()); }
  Stream* stream() const { return stream_; }

 private:
  OperandSets(const Problem& problem, Stream* stream);

  absl::Status Allocate(int64_t sets);
  absl::Status PlaceHost(bool device_is_host);
  void FillHost(const Plan& plan, cpu::ThreadPool& pool);
  absl::Status CopyInputs();
  absl::Status EnqueuePoison(const Operands& set, size_t output, const ElementRange& range);
  absl::Status EnqueuePieces(absl::Span<const char> piece, char* to, size_t bytes);

  const Problem* problem_;
  OperandLayout layout_;
  Stream* stream_;
  std::vector<Buffer> memory_;  // per set
  std::vector<Buffer> kept_;
  std::vector<Operands> sets_;
  Buffer host_memory_;  // empty if the device's memory is the host's
  Operands host_;
  size_t next_ = 0;
};

}  // namespace warpcall::inspect
