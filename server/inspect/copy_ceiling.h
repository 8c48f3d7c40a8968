// What moving a problem's bytes costs at best on a device: the ceiling that memory-bound kernels
// are measured by.
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
  // Copies that read and write `bytes` in all, over as many sets as a problem of so many bytes
  // gets: so what fits into a cache is compared with copies that fit there too. 0, or more than the
  // caches hold several times over: the device's memory. NOT_FOUND without a row that copies.
  static absl::StatusOr<std::unique_ptr<CopyCeiling>> Create(const FastestRows::Site& site,
                                                             int64_t bytes);

  absl::Status Sample() { return rows_->Sample(); }
  // Bytes read plus bytes written a second; 0 before there is a sample.
  double bytes_per_second() const;
  int64_t samples() const { return rows_->samples(); }
  int64_t spent_ns() const { return rows_->spent_ns(); }

 private:
  explicit CopyCeiling(std::unique_ptr<FastestRows> rows) : rows_(std::move(rows)) {}

  const std::unique_ptr<FastestRows> rows_;
};

// Whether copies of `bytes` tell what the device's memory can do, and not only its caches.
bool CopiesPassCaches(int64_t bytes, const DeviceProperties& device);

}  // namespace warpcall::inspect
