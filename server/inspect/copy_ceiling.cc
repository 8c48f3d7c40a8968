#include "server/inspect/copy_ceiling.h"

#include <algorithm>
#include <utility>

#include "kernels/common/saturate.h"
#include "proto/common/status_macros.h"
#include "server/inspect/operand_sets.h"

namespace warpcall::inspect {
namespace {

constexpr int64_t kCachesCopied = 4;
// Bytes of input and output together.
constexpr int64_t kGpuBytes = int64_t{2} << 30;
constexpr int64_t kGpuMemoryShare = 4;  // if memory is below 8 GiB
constexpr int64_t kCpuBytesMin = int64_t{128} << 20;
// The first touch of a page takes longer than its copy; more would keep the caller waiting.
constexpr int64_t kCpuBytesMax = int64_t{256} << 20;

int64_t WholeMemory(const DeviceProperties& device) {
  const int64_t evicting = CacheBytes(device) * kCachesCopied;
  if (device.kind == DeviceKind::kCpu) return std::clamp(evicting, kCpuBytesMin, kCpuBytesMax);
  return std::max(evicting, std::min(kGpuBytes, device.memory_bytes / kGpuMemoryShare));
}

// Bytes of one copy.
int64_t BytesToCopy(int64_t bytes, const DeviceProperties& device) {
  const int64_t whole = WholeMemory(device);
  return bytes <= 0 ? whole : std::min(bytes, whole);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CopyCeiling>> CopyCeiling::Create(const FastestRows::Site& site,
                                                                 int64_t bytes) {
  const auto element_bytes = static_cast<int64_t>(ElementBytes(DataType::kFloat32));
  const int64_t copied = BytesToCopy(bytes, *site.device);
  const int64_t elements = CeilDivide(copied, 2 * element_bytes);
  std::unique_ptr<FastestRows> rows;
  ASSIGN_OR_RETURN(rows, FastestRows::Create(site, {"identity", {{DataType::kFloat32, {elements}}}},
                                             SetsFor(copied, *site.device)));
  return std::unique_ptr<CopyCeiling>(new CopyCeiling(std::move(rows)));
}

double CopyCeiling::bytes_per_second() const {
  const double copy_ns = rows_->launch_ns();
  const auto bytes = static_cast<double>(rows_->problem().inputs[0].bytes() * 2);
  return copy_ns > 0 ? bytes * 1e9 / copy_ns : 0;
}

bool CopiesPassCaches(int64_t bytes, const DeviceProperties& device) {
  const int64_t copied = BytesToCopy(bytes, device);
  const int64_t touched = SaturatingMultiply(copied, SetsFor(copied, device));
  return touched >= std::min(WholeMemory(device) / 2, 2 * CacheBytes(device));
}

}  // namespace warpcall::inspect
