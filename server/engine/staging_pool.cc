#include "server/engine/staging_pool.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

size_t RoundUp(size_t bytes) {
  return (bytes + StagingPool::kGranuleBytes - 1) / StagingPool::kGranuleBytes *
         StagingPool::kGranuleBytes;
}

}  // namespace

class StagingArena {
  struct Range {
    size_t offset;
    size_t bytes;
  };

 public:
  explicit StagingArena(Buffer memory) : memory_(std::move(memory)) {
    if (memory_.bytes() > 0) free_.push_back({0, memory_.bytes()});
  }

  size_t total_bytes() const { return memory_.bytes(); }
  char* at(const StagingBuffer::Range& range) const {
    WARPCALL_CHECK(range.offset <= total_bytes() && range.bytes <= total_bytes() - range.offset,
                   range.offset, range.bytes, total_bytes());
    return static_cast<char*>(memory_.data()) + range.offset;
  }

  size_t used_bytes() const {
    absl::MutexLock lock(&mutex_);
    return used_;
  }

  // Returns offsets for all `sizes`, or nothing.
  std::optional<absl::InlinedVector<size_t, 3>> Take(absl::Span<const size_t> sizes,
                                                     uint64_t principal) {
    absl::MutexLock lock(&mutex_);
    const size_t wanted = StagingPool::BytesFor(sizes);
    if (!MayHave(wanted, principal)) {
      take_failed_ = true;
      return std::nullopt;
    }
    absl::InlinedVector<size_t, 3> offsets;
    for (size_t bytes : sizes) {
      const std::optional<size_t> offset = TakeOne(RoundUp(bytes), &free_);
      if (!offset.has_value()) {
        for (size_t i = 0; i < offsets.size(); ++i) PutOne(offsets[i], RoundUp(sizes[i]));
        take_failed_ = true;
        return std::nullopt;
      }
      offsets.push_back(*offset);
      used_ += RoundUp(bytes);
    }
    if (wanted > 0) held_[principal] += wanted;
    if (WARPCALL_DCHECK_IS_ON) CheckInvariants();
    return offsets;
  }

  bool HasRoom(absl::Span<const size_t> sizes, uint64_t principal) const {
    absl::MutexLock lock(&mutex_);
    if (!MayHave(StagingPool::BytesFor(sizes), principal)) return false;
    std::vector<Range> free = free_;
    return std::all_of(sizes.begin(), sizes.end(), [&free](size_t bytes) {
      return TakeOne(RoundUp(bytes), &free).has_value();
    });
  }

  void Put(const StagingBuffer::Range& range) {
    const size_t bytes = RoundUp(range.bytes);
    if (bytes == 0) return;
    bool tell;
    {
      absl::MutexLock lock(&mutex_);
      PutOne(range.offset, bytes);
      const auto held = held_.find(range.principal);
      WARPCALL_CHECK(held != held_.end() && held->second >= bytes, range.principal, bytes);
      held->second -= bytes;
      if (held->second == 0) held_.erase(held);
      if (WARPCALL_DCHECK_IS_ON) CheckInvariants();
      tell = std::exchange(take_failed_, false);
    }
    if (!tell) return;
    absl::MutexLock lock(&returned_mutex_);
    if (returned_ != nullptr) returned_();
  }

  void OnReturn(std::function<void()> returned) {
    absl::MutexLock lock(&returned_mutex_);
    returned_ = std::move(returned);
  }

 private:
  // Aborts unless free ranges are in order and apart, and together with the principals' ranges make
  // up the arena. Ranges are few.
  void CheckInvariants() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    size_t free = 0;
    size_t end = 0;
    for (const Range& range : free_) {
      WARPCALL_CHECK(range.bytes > 0 && (free == 0 || range.offset > end), range.offset,
                     range.bytes, end);
      free += range.bytes;
      end = range.offset + range.bytes;
    }
    WARPCALL_CHECK(end <= total_bytes() && free + used_ == total_bytes(), end, free, used_);
    size_t held = 0;
    for (const auto& [principal, bytes] : held_) held += bytes;
    WARPCALL_CHECK(held == used_, held, used_);
  }

  // True if `principal` may allocate `wanted` bytes more, wherever they lie.
  bool MayHave(size_t wanted, uint64_t principal) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const size_t free = total_bytes() - used_;
    if (wanted > free) return false;
    const auto held = held_.find(principal);
    return held == held_.end() || held->second + wanted <= free - wanted;
  }

  static std::optional<size_t> TakeOne(size_t bytes, std::vector<Range>* from) {
    if (bytes == 0) return 0;
    const auto range = std::find_if(from->begin(), from->end(),
                                    [bytes](const Range& free) { return free.bytes >= bytes; });
    if (range == from->end()) return std::nullopt;
    const size_t offset = range->offset;
    range->offset += bytes;
    range->bytes -= bytes;
    if (range->bytes == 0) from->erase(range);
    return offset;
  }

  void PutOne(size_t offset, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (bytes == 0) return;
    WARPCALL_CHECK(bytes <= used_ && offset <= total_bytes() && bytes <= total_bytes() - offset,
                   offset, bytes, used_);
    used_ -= bytes;
    auto next =
        std::lower_bound(free_.begin(), free_.end(), offset,
                         [](const Range& free, size_t position) { return free.offset < position; });
    // A range that is free already would be handed out twice.
    WARPCALL_CHECK(next == free_.end() || offset + bytes <= next->offset, offset, bytes);
    WARPCALL_CHECK(
        next == free_.begin() || std::prev(next)->offset + std::prev(next)->bytes <= offset, offset,
        bytes);
    const bool joins_next = next != free_.end() && offset + bytes == next->offset;
    const bool joins_previous =
        next != free_.begin() && std::prev(next)->offset + std::prev(next)->bytes == offset;
    if (joins_next) {
      next->offset = offset;
      next->bytes += bytes;
    } else if (!joins_previous) {
      next = free_.insert(next, {offset, bytes});
    }
    if (!joins_previous) return;
    std::prev(next)->bytes += joins_next ? next->bytes : bytes;
    if (joins_next) free_.erase(next);
  }

  const Buffer memory_;
  mutable absl::Mutex mutex_;
  // By offset, never adjacent. A vector: ranges are few, and a grown vector allocates no more.
  std::vector<Range> free_ ABSL_GUARDED_BY(mutex_);
  size_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, size_t> held_ ABSL_GUARDED_BY(mutex_);  // bytes, by principal
  bool take_failed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Mutex returned_mutex_;  // held while `returned_` runs, so that it ends before its target
  std::function<void()> returned_ ABSL_GUARDED_BY(returned_mutex_);
};

StagingBuffer::StagingBuffer(std::shared_ptr<StagingArena> arena, const Range& range)
    : arena_(std::move(arena)), range_(range) {
  WARPCALL_DCHECK(range.offset % StagingPool::kGranuleBytes == 0, range.offset);
}

StagingBuffer& StagingBuffer::operator=(StagingBuffer&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(range_, other.range_);
  return *this;
}

StagingBuffer::~StagingBuffer() {
  if (arena_ != nullptr) arena_->Put(range_);
}

char* StagingBuffer::data() const { return arena_ == nullptr ? nullptr : arena_->at(range_); }

StagingPool::StagingPool(Buffer memory)
    : arena_(std::make_shared<StagingArena>(std::move(memory))) {
  WARPCALL_DCHECK(reinterpret_cast<uintptr_t>(arena_->at({})) % kGranuleBytes == 0);
}

StagingPool::~StagingPool() { arena_->OnReturn(nullptr); }

void StagingPool::OnReturn(std::function<void()> returned) {
  arena_->OnReturn(std::move(returned));
}

size_t StagingPool::BytesFor(absl::Span<const size_t> sizes) {
  size_t bytes = 0;
  for (const size_t size : sizes) bytes += RoundUp(size);
  return bytes;
}

absl::optional<StagingBuffers> StagingPool::TryAllocate(absl::Span<const size_t> sizes,
                                                        uint64_t principal) {
  const auto offsets = arena_->Take(sizes, principal);
  if (!offsets.has_value()) return absl::nullopt;
  WARPCALL_DCHECK(offsets->size() == sizes.size(), offsets->size(), sizes.size());
  StagingBuffers buffers;
  for (size_t i = 0; i < sizes.size(); ++i)
    buffers.push_back(StagingBuffer(arena_, {(*offsets)[i], sizes[i], principal}));
  return buffers;
}

bool StagingPool::HasRoom(absl::Span<const size_t> sizes, uint64_t principal) const {
  return arena_->HasRoom(sizes, principal);
}

size_t StagingPool::total_bytes() const { return arena_->total_bytes(); }
size_t StagingPool::used_bytes() const { return arena_->used_bytes(); }

}  // namespace warpcall
