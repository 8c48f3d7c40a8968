// The best speed at which a device moves a problem's bytes: the ceiling against which memory-bound
// kernels are measured.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/op.h"
#include "kernels/reads.h"
#include "server/inspect/fastest_rows.h"
#include "server/inspect/row_timer.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

// Times copies, or reads and nothing else. Used by the stream's thread; destroyed before the stream
// and the sets.
class MemoryCeiling {
 public:
  // Copies by the fastest rows of "identity" that read and write `bytes` in all, over as many sets
  // as a problem of that size gets: a problem that fits into a cache is compared with copies that
  // fit there too. 0, or more than several times the caches: the device's memory. NOT_FOUND without
  // a row that copies.
  static absl::StatusOr<std::unique_ptr<MemoryCeiling>> OfCopies(const FastestRows::Site& site,
                                                                 int64_t bytes);
  // Reads of the problem's own sets, each from its first byte to its last. REQUIRES:
  // ReadsAlmostOnly(problem).
  static absl::StatusOr<std::unique_ptr<MemoryCeiling>> OfReads(const ReadsSource& source,
                                                                const DeviceProperties& device,
                                                                const Problem& problem,
                                                                const RowTimer::Shared& shared);

  absl::Status Sample() { return copies_ != nullptr ? copies_->Sample() : reads_->Sample(); }
  // Bytes read plus bytes written per second, by a fast sample (p10): other work on the machine
  // only adds time. 0 before the first sample.
  double bytes_per_second() const;
  int64_t samples() const;
  int64_t spent_ns() const { return copies_ != nullptr ? copies_->spent_ns() : reads_->spent_ns(); }

 private:
  explicit MemoryCeiling(int64_t bytes) : bytes_(bytes) {}

  const int64_t bytes_;  // of a launch
  // One of these is set.
  std::unique_ptr<FastestRows> copies_;
  std::unique_ptr<RowTimer> reads_;
};

// True if reads are the problem's ceiling, because less than a sixteenth of its bytes is output:
// on an H100 reads are faster than copies by 3 %, on an H200 by 4 to 7 %.
bool ReadsAlmostOnly(const Problem& problem);

// True if copies of `bytes` measure the device's memory, and not only its caches.
bool CopiesPassCaches(int64_t bytes, const DeviceProperties& device);

}  // namespace warpcall::inspect
