// Watches the memory of the process: gives the system back what malloc keeps of messages that are
// gone, and says when there is more than the flags allow.
#pragma once

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "server/system/housekeeper.h"

namespace warpcall {

// Decides when to trim. A trim blocks allocations for 0.25 ms per MiB that it returns, so it runs
// at rest, or when memory would run out.
class TrimRule {
 public:
  struct Look {
    int64_t time_ns;
    int64_t cpu_ns;          // used by all threads since the process began
    int64_t resident_bytes;  // without pages of files, which the system reclaims by itself
    int64_t free_bytes;      // kept by malloc, returned to the system or not
  };

  // Least growth since the last trim that makes another one worthwhile: growth of resident memory,
  // or of free memory, which was in use at the last trim and so is resident.
  static constexpr int64_t kGrownBytesMin = int64_t{32} << 20;
  // A process at rest takes less than this of one core from one look to the next.
  static constexpr double kRestCores = 0.05;
  // The part of the limit from which a busy process is trimmed, too.
  static constexpr double kFull = 0.75;

  // `limit_bytes` is the memory that the process may use. In a server of several processes each
  // follows the rule by itself; memory that they share, such as workers' staging, is not counted.
  explicit TrimRule(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Looks follow one another in time. Where it is due, Trimmed comes before the next.
  bool IsDue(const Look& look);
  void Trimmed(int64_t resident_bytes, int64_t free_bytes) {
    least_resident_bytes_ = resident_bytes;
    least_free_bytes_ = free_bytes;
  }

 private:
  const int64_t limit_bytes_;
  bool has_looked_ = false;
  Look last_ = {};
  // At a look since the last time.
  int64_t least_resident_bytes_ = 0;
  int64_t least_free_bytes_ = 0;
};

// How much of what comes in a server has to give up when its memory is over its limit. Frames of
// one byte hold four times what gRPC's quota counts, so the quota alone does not bound memory.
class ShedRule {
 public:
  // The first step leaves an eighth: frames of one byte fill a quarter of the quota by then.
  static constexpr int kHalvingsMin = 3;
  static constexpr int kHalvingsMax = 6;

  // After a look that found so much memory in use: how often the quota is to be halved, one step at
  // a time. Steps back below nine tenths of the limit.
  int Next(int64_t used_bytes, int64_t limit_bytes);

 private:
  int halvings_ = 0;
};

// Follows the rule as long as it lives, by a timer.
class MemoryTrim {
 public:
  // Called ten times a second, with the memory that the process uses, shared memory included; true:
  // give free memory back at once.
  using Look = absl::AnyInvocable<bool(int64_t used_bytes)>;

  explicit MemoryTrim(int64_t limit_bytes, Look look = nullptr,
                      absl::Duration period = absl::Milliseconds(100));

 private:
  void LookAndTrim();
  void TrimIfDue();

  // The timer's.
  TrimRule rule_;
  Look look_;
  int looks_ = 0;
  Timer timer_;  // last: works on all of the above
};

}  // namespace warpcall
