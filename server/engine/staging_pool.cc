#include "server/engine/staging_pool.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/retry_pushback.h"

namespace warpcall {
namespace {

constexpr absl::Duration kRecheckPeriod = absl::Milliseconds(10);
// How long a caller should stay away when staging was full all through its wait.
constexpr int64_t kStagingPushbackMs = 100;

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
  char* at(size_t offset) const { return static_cast<char*>(memory_.data()) + offset; }

  size_t used_bytes() const {
    absl::MutexLock lock(&mutex_);
    return used_;
  }

  // Offsets for all `sizes`, or nothing.
  std::optional<absl::InlinedVector<size_t, 3>> Take(absl::Span<const size_t> sizes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::InlinedVector<size_t, 3> offsets;
    for (size_t bytes : sizes) {
      const std::optional<size_t> offset = TakeOne(RoundUp(bytes));
      if (!offset.has_value()) {
        for (size_t i = 0; i < offsets.size(); ++i) PutOne(offsets[i], RoundUp(sizes[i]));
        return std::nullopt;
      }
      offsets.push_back(*offset);
    }
    return offsets;
  }

  void Put(size_t offset, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    PutOne(offset, RoundUp(bytes));
    returned_.SignalAll();
  }

  absl::Mutex* mutex() ABSL_LOCK_RETURNED(mutex_) { return &mutex_; }
  void AwaitReturn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    returned_.WaitWithTimeout(&mutex_, kRecheckPeriod);
  }

 private:
  std::optional<size_t> TakeOne(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (bytes == 0) return 0;
    const auto range = std::find_if(free_.begin(), free_.end(),
                                    [bytes](const Range& free) { return free.bytes >= bytes; });
    if (range == free_.end()) return std::nullopt;
    const size_t offset = range->offset;
    range->offset += bytes;
    range->bytes -= bytes;
    if (range->bytes == 0) free_.erase(range);
    used_ += bytes;
    return offset;
  }

  void PutOne(size_t offset, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (bytes == 0) return;
    used_ -= bytes;
    auto next =
        std::lower_bound(free_.begin(), free_.end(), offset,
                         [](const Range& free, size_t position) { return free.offset < position; });
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
  absl::CondVar returned_;
  // By offset, never adjacent. A vector: ranges are few, and none is allocated once it has grown.
  std::vector<Range> free_ ABSL_GUARDED_BY(mutex_);
  size_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

StagingBuffer::StagingBuffer(std::shared_ptr<StagingArena> arena, size_t offset, size_t bytes)
    : arena_(std::move(arena)), offset_(offset), bytes_(bytes) {}

StagingBuffer& StagingBuffer::operator=(StagingBuffer&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(offset_, other.offset_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

StagingBuffer::~StagingBuffer() {
  if (arena_ != nullptr) arena_->Put(offset_, bytes_);
}

char* StagingBuffer::data() const { return arena_ == nullptr ? nullptr : arena_->at(offset_); }

StagingPool::StagingPool(Buffer memory)
    : arena_(std::make_shared<StagingArena>(std::move(memory))) {}

absl::StatusOr<StagingBuffers> StagingPool::Allocate(absl::Span<const size_t> sizes,
                                                     absl::FunctionRef<bool()> keep_waiting) {
  size_t wanted = 0;
  for (size_t bytes : sizes) wanted += RoundUp(bytes);
  if (wanted > total_bytes()) {
    return WithRetryPushback(
        absl::ResourceExhaustedError(absl::StrCat("the request needs ", wanted,
                                                  " bytes of staging memory for inputs and "
                                                  "outputs; the limit is ",
                                                  total_bytes(), " bytes (staging_mib)")),
        kNeverRetry);
  }
  absl::MutexLock lock(arena_->mutex());
  auto offsets = arena_->Take(sizes);
  while (!offsets.has_value() && keep_waiting()) {
    arena_->AwaitReturn();
    offsets = arena_->Take(sizes);
  }
  if (!offsets.has_value()) {
    return WithRetryPushback(
        absl::ResourceExhaustedError(absl::StrCat(
            "staging memory is full: ", wanted, " bytes wanted, ", total_bytes(),
            " bytes (staging_mib) in all, held by requests and by responses not yet read")),
        kStagingPushbackMs);
  }
  StagingBuffers buffers;
  for (size_t i = 0; i < sizes.size(); ++i)
    buffers.push_back(StagingBuffer(arena_, (*offsets)[i], sizes[i]));
  return buffers;
}

size_t StagingPool::total_bytes() const { return arena_->total_bytes(); }
size_t StagingPool::used_bytes() const { return arena_->used_bytes(); }

}  // namespace warpcall
