// Host memory that requests are copied into and responses are sent from: one arena per device,
// obtained at start, handed out in ranges. First fit by address over coalesced free ranges: no size
// classes, so nothing is lost to rounding but the granule, and low, warm addresses are used again
// first.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/runtime/device.h"

namespace warpcall {

class StagingArena;

// A range of the arena; move-only, gives itself back on any thread, and may outlive the pool.
class StagingBuffer {
 public:
  StagingBuffer() = default;
  StagingBuffer(std::shared_ptr<StagingArena> arena, size_t offset, size_t bytes);
  StagingBuffer(StagingBuffer&& other) noexcept { *this = std::move(other); }
  StagingBuffer& operator=(StagingBuffer&& other) noexcept;
  ~StagingBuffer();

  char* data() const;
  size_t bytes() const { return bytes_; }  // as asked for

 private:
  std::shared_ptr<StagingArena> arena_;
  size_t offset_ = 0;
  size_t bytes_ = 0;
};

using StagingBuffers = absl::InlinedVector<StagingBuffer, 3>;

// Thread-safe.
class StagingPool {
 public:
  // Ranges start on multiples of this: a page, so that neighbours share no cache line and copies no
  // page.
  static constexpr size_t kGranuleBytes = 4096;

  // Takes over `memory`, which must be aligned to the granule.
  explicit StagingPool(Buffer memory);

  // One range per size, all or none (so that two jobs never wait for each other's half), waiting
  // for others to give theirs back while `keep_waiting` says so; it is asked at least every 10 ms.
  // RESOURCE_EXHAUSTED names the sizes and the limit.
  absl::StatusOr<StagingBuffers> Allocate(absl::Span<const size_t> sizes,
                                          absl::FunctionRef<bool()> keep_waiting);

  size_t total_bytes() const;
  size_t used_bytes() const;

 private:
  std::shared_ptr<StagingArena> arena_;
};

}  // namespace warpcall
