// What moving a problem's bytes costs at best on a device: the ceiling that memory-bound kernels
// are measured by.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/registry.h"
#include "server/engine/clock.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/row_timer.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

// Copies by the rows of "identity". Used by the stream's thread; destroyed before the stream.
class CopyCeiling {
 public:
  struct Site {
    const Registry* registry = nullptr;
    const DeviceProperties* device = nullptr;
    Stream* stream = nullptr;
    cpu::ThreadPool* pool = nullptr;
    Clock clock = MonotonicNs;
  };

  // Copies that read and write `bytes` in all, over as many sets as a problem of so many bytes
  // gets: so what fits into a cache is compared with copies that fit there too. 0, or more than the
  // caches hold several times over: the device's memory. NOT_FOUND without a row that copies.
  static absl::StatusOr<std::unique_ptr<CopyCeiling>> Create(const Site& site, int64_t bytes);

  // One more sample of one of the rows.
  absl::Status Sample();
  // Bytes read plus bytes written a second, by a fast sample (p10) of the fastest row, since
  // whatever else the machine does only adds to it; 0 before it has one.
  double bytes_per_second() const;
  int64_t samples() const { return samples_; }
  int64_t spent_ns() const;

 private:
  struct Copier {
    PlanPtr plan;
    Buffer workspace;
    std::unique_ptr<RowTimer> timer;
  };

  explicit CopyCeiling(Problem problem) : problem_(std::move(problem)) {}
  absl::Status AddRows(const Site& site);
  absl::StatusOr<Copier> Ready(const Site& site, const Implementation& row);

  const Problem problem_;
  std::optional<OperandSets> sets_;
  std::vector<Copier> copiers_;
  int64_t samples_ = 0;
};

// Whether copies of `bytes` tell what the device's memory can do, and not only its caches.
bool CopiesPassCaches(int64_t bytes, const DeviceProperties& device);

}  // namespace warpcall::inspect
