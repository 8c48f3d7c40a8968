// The best speed at which a device moves a problem's bytes: the ceiling against which memory-bound
// kernels are measured.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/inspect/fastest_rows.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

// Copies by the fastest rows of "identity". Used by the stream's thread; destroyed before the
// stream.
class CopyCeiling {
 public:
  // Copies that read and write `bytes` in all, over as many sets as a problem of that size gets: a
  // problem that fits into a cache is compared with copies that fit there too. 0, or more than
  // several times the caches: the device's memory. NOT_FOUND without a row that copies.
  static absl::StatusOr<std::unique_ptr<CopyCeiling>> Create(const FastestRows::Site& site,
                                                             int64_t bytes);

  absl::Status Sample() { return rows_->Sample(); }
  // Bytes read plus bytes written per second; 0 before the first sample.
  double bytes_per_second() const;
  int64_t samples() const { return rows_->samples(); }
  int64_t spent_ns() const { return rows_->spent_ns(); }

 private:
  explicit CopyCeiling(std::unique_ptr<FastestRows> rows) : rows_(std::move(rows)) {}

  const std::unique_ptr<FastestRows> rows_;
};

// True if copies of `bytes` measure the device's memory, and not only its caches.
bool CopiesPassCaches(int64_t bytes, const DeviceProperties& device);

}  // namespace warpcall::inspect
