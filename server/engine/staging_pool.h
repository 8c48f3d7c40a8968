// Host memory that requests are copied into and responses are sent from. One arena per device,
// obtained at start, is handed out in ranges: first fit by address over coalesced free ranges.
// There are no size classes, so rounding loses nothing but the granule, and low, warm addresses are
// reused first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "server/runtime/device.h"

namespace warpcall {

class StagingArena;

// A range of the arena. Move-only; returns itself on any thread, and may outlive the pool.
class StagingBuffer {
 public:
  StagingBuffer() = default;
  struct Range {
    size_t offset = 0;
    size_t bytes = 0;  // as requested
    uint64_t principal = 0;
  };
  StagingBuffer(std::shared_ptr<StagingArena> arena, const Range& range);
  StagingBuffer(StagingBuffer&& other) noexcept { *this = std::move(other); }
  StagingBuffer& operator=(StagingBuffer&& other) noexcept;
  ~StagingBuffer();

  char* data() const;
  size_t bytes() const { return range_.bytes; }

 private:
  std::shared_ptr<StagingArena> arena_;
  Range range_;
};

using StagingBuffers = absl::InlinedVector<StagingBuffer, 3>;

// Thread-safe.
class StagingPool {
 public:
  // Ranges start on multiples of this, a page. So neighbours share no cache line, and copies share
  // no page.
  static constexpr size_t kGranuleBytes = 4096;

  // Takes over `memory`, which must be aligned to the granule.
  explicit StagingPool(Buffer memory);

  // The bytes of the arena that ranges of `sizes` occupy.
  static size_t BytesFor(absl::Span<const size_t> sizes);

  // Allocates one range per size, all or none (so two jobs never wait for each other's half).
  // Returns nothing when there is no room at present, or none for `principal`. A principal that
  // holds ranges, perhaps answers that it does not read, gets more only if as much as it then holds
  // stays free.
  absl::optional<StagingBuffers> TryAllocate(absl::Span<const size_t> sizes, uint64_t principal);

  // True if TryAllocate would succeed now.
  bool HasRoom(absl::Span<const size_t> sizes, uint64_t principal) const;

  // Calls `returned` when a range came back after an attempt got nothing, on the thread that gave
  // it back; no longer once the pool is gone or another call of OnReturn has returned.
  void OnReturn(std::function<void()> returned);
  ~StagingPool();

  size_t total_bytes() const;
  size_t used_bytes() const;

 private:
  std::shared_ptr<StagingArena> arena_;
};

}  // namespace warpcall
