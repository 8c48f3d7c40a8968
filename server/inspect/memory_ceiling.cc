#include "server/inspect/memory_ceiling.h"

#include <algorithm>
#include <utility>

#include "kernels/common/saturate.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/summary.h"

namespace warpcall::inspect {
namespace {

constexpr int64_t kCachesCopied = 4;
// Bytes of input and output together.
constexpr int64_t kGpuBytes = int64_t{2} << 30;
constexpr int64_t kGpuMemoryShare = 4;  // if memory is below 8 GiB
constexpr int64_t kCpuBytesMin = int64_t{128} << 20;
// The first touch of a page takes longer than its copy; more would keep the caller waiting.
constexpr int64_t kCpuBytesMax = int64_t{256} << 20;

// Where reads are the ceiling, outputs are less than one of so many bytes.
constexpr int64_t kWrittenShare = 16;
// A first launch is warm enough, as of copies (FastestRows).
constexpr TimingPlan kReadTiming = {.warmup_launches = 1, .samples = 1, .ns_max = 50'000'000};

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

absl::StatusOr<std::unique_ptr<MemoryCeiling>> MemoryCeiling::OfCopies(
    const FastestRows::Site& site, int64_t bytes) {
  const auto element_bytes = static_cast<int64_t>(ElementBytes(DataType::kFloat32));
  const int64_t copied = BytesToCopy(bytes, *site.device);
  const int64_t elements = CeilDivide(copied, 2 * element_bytes);
  std::unique_ptr<MemoryCeiling> ceiling(new MemoryCeiling(2 * elements * element_bytes));
  ASSIGN_OR_RETURN(ceiling->copies_,
                   FastestRows::Create(site, {"identity", {{DataType::kFloat32, {elements}}}},
                                       SetsFor(copied, *site.device)));
  return ceiling;
}

absl::StatusOr<std::unique_ptr<MemoryCeiling>> MemoryCeiling::OfReads(
    const ReadsSource& source, const DeviceProperties& device, const Problem& problem,
    const RowTimer::Shared& shared) {
  WARPCALL_DCHECK(ReadsAlmostOnly(problem));
  const int64_t bytes = OperandLayout(problem).bytes;
  PlanPtr plan;
  ASSIGN_OR_RETURN(plan, source(bytes, device));
  std::unique_ptr<MemoryCeiling> ceiling(new MemoryCeiling(bytes));
  ceiling->reads_ = std::make_unique<RowTimer>(plan, shared, kReadTiming, /*workspace=*/nullptr);
  RETURN_IF_ERROR(ceiling->reads_->First());
  RETURN_IF_ERROR(ceiling->reads_->WarmUp());
  return ceiling;
}

int64_t MemoryCeiling::samples() const {
  return copies_ != nullptr ? copies_->samples()
                            : static_cast<int64_t>(reads_->samples_ns().size());
}

double MemoryCeiling::bytes_per_second() const {
  const double launch_ns =
      copies_ != nullptr ? copies_->launch_ns() : Summarize(reads_->samples_ns()).p10;
  return launch_ns > 0 ? static_cast<double>(bytes_) * 1e9 / launch_ns : 0;
}

bool ReadsAlmostOnly(const Problem& problem) {
  int64_t read = 0, written = 0;
  for (const TensorSpec& spec : problem.inputs)
    read = SaturatingAdd(read, static_cast<int64_t>(spec.bytes()));
  for (const TensorSpec& spec : problem.outputs)
    written = SaturatingAdd(written, static_cast<int64_t>(spec.bytes()));
  // A set begins with input 0.
  if (problem.inputs.empty() || problem.inputs[0].bytes() == 0) return false;
  return SaturatingMultiply(written, kWrittenShare) < SaturatingAdd(read, written);
}

bool CopiesPassCaches(int64_t bytes, const DeviceProperties& device) {
  const int64_t copied = BytesToCopy(bytes, device);
  const int64_t touched = SaturatingMultiply(copied, SetsFor(copied, device));
  return touched >= std::min(WholeMemory(device) / 2, 2 * CacheBytes(device));
}

}  // namespace warpcall::inspect
