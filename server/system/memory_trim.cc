#include "server/system/memory_trim.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>
#include <utility>

#include "server/log/log.h"

namespace warpcall {
namespace {

constexpr double kBytesPerMib = 1 << 20;
// Looks from one trim to the next, which would else take the locks of malloc too often.
constexpr int kLooksPerTrim = 10;

int64_t NowNs(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// proc(5): pages in all, resident, and those of the resident ones that are files' or shared. 0
// where they cannot be read.
int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all_pages = 0;
  int64_t resident_pages = 0;
  int64_t shared_pages = 0;
  if (!(file >> all_pages >> resident_pages >> shared_pages)) return 0;
  return (resident_pages - shared_pages) * sysconf(_SC_PAGESIZE);
}

// proc(5): resident pages that are no file's. 0 where they cannot be read.
int64_t UsedBytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t used_kib = 0;
  while (file >> word) {
    if (word != "RssAnon:" && word != "RssShmem:") continue;
    int64_t kib = 0;
    file >> kib;
    used_kib += kib;
  }
  return used_kib << 10;
}

// In all of malloc's arenas, whose free blocks are counted: some 10 ns each, while the arena waits.
int64_t FreeBytes() { return static_cast<int64_t>(mallinfo2().fordblks); }

}  // namespace

bool TrimRule::IsDue(const Look& look) {
  const Look last = last_;
  last_ = look;
  if (!has_looked_) {
    has_looked_ = true;
    Trimmed(look.resident_bytes, look.free_bytes);
    return false;
  }
  least_resident_bytes_ = std::min(least_resident_bytes_, look.resident_bytes);
  least_free_bytes_ = std::min(least_free_bytes_, look.free_bytes);
  if (look.resident_bytes - least_resident_bytes_ < kGrownBytesMin &&
      look.free_bytes - least_free_bytes_ < kGrownBytesMin)
    return false;
  if (static_cast<double>(look.resident_bytes) >= kFull * static_cast<double>(limit_bytes_))
    return true;
  return static_cast<double>(look.cpu_ns - last.cpu_ns) <
         kRestCores * static_cast<double>(look.time_ns - last.time_ns);
}

int ShedRule::Next(int64_t used_bytes, int64_t limit_bytes) {
  if (used_bytes > limit_bytes)
    halvings_ = std::clamp(halvings_ + 1, kHalvingsMin, kHalvingsMax);
  else if (used_bytes < limit_bytes / 10 * 9)
    halvings_ = halvings_ > kHalvingsMin ? halvings_ - 1 : 0;
  return halvings_;
}

MemoryTrim::MemoryTrim(int64_t limit_bytes, Look look, absl::Duration period)
    : rule_(limit_bytes),
      look_(std::move(look)),
      timer_(
          "memory", [this] { LookAndTrim(); }, period) {
  timer_.Start(absl::ZeroDuration());
}

void MemoryTrim::LookAndTrim() {
  if (look_ != nullptr && look_(UsedBytes())) malloc_trim(0);
  if (looks_++ % kLooksPerTrim == 0) TrimIfDue();
}

void MemoryTrim::TrimIfDue() {
  const TrimRule::Look look = {NowNs(CLOCK_MONOTONIC), NowNs(CLOCK_PROCESS_CPUTIME_ID),
                               ResidentBytes(), FreeBytes()};
  if (!rule_.IsDue(look)) return;
  malloc_trim(0);
  const int64_t left_bytes = ResidentBytes();
  // Memory freed during the trim, in an arena that was already trimmed, is still resident.
  rule_.Trimmed(left_bytes, std::min(look.free_bytes, FreeBytes()));
  Log(LogLevel::kDebug, "gave free memory back",
      {{"resident_mib", static_cast<double>(look.resident_bytes) / kBytesPerMib},
       {"left_mib", static_cast<double>(left_bytes) / kBytesPerMib}});
}

}  // namespace warpcall
