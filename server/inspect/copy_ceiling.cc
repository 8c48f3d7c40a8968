#include "server/inspect/copy_ceiling.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "kernels/common/status_macros.h"
#include "server/inspect/summary.h"
#include "server/runtime/plan_site.h"

namespace warpcall::inspect {
namespace {

constexpr int64_t kCachesCopied = 4;
// Bytes of input and output together.
constexpr int64_t kGpuBytes = int64_t{2} << 30;
constexpr int64_t kGpuMemoryShare = 4;  // of less memory than 8 GiB
constexpr int64_t kCpuBytesMin = int64_t{128} << 20;
// Touching a page first takes longer than copying it; more would keep the caller waiting.
constexpr int64_t kCpuBytesMax = int64_t{256} << 20;
// A first copy of a CPU's memory is warm enough.
constexpr TimingPlan kTiming = {.warmup_launches = 1, .samples = 1, .ns_max = 50'000'000};
// Longer than what memory controllers or caches could find equal.
constexpr int64_t kPeriodElements = int64_t{1} << 20;
// Rows this much slower than the fastest are not measured again.
constexpr double kSlower = 1.25;

int64_t WholeMemory(const DeviceProperties& device) {
  const int64_t evicting = CacheBytes(device) * kCachesCopied;
  if (device.kind == DeviceKind::kCpu) return std::clamp(evicting, kCpuBytesMin, kCpuBytesMax);
  return std::max(evicting, std::min(kGpuBytes, device.memory_bytes / kGpuMemoryShare));
}

// Of one copy.
int64_t BytesToCopy(int64_t bytes, const DeviceProperties& device) {
  const int64_t whole = WholeMemory(device);
  return bytes <= 0 ? whole : std::min(bytes, whole);
}

bool IsOwnCopy(const Row& row, const DeviceProperties& device) {
  const Family family = row.implementation.family;
  return row.implementation.device_kind == device.kind && family != Family::kManual &&
         family != Family::kReference;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CopyCeiling>> CopyCeiling::Create(const Site& site, int64_t bytes) {
  const Kernel* kernel;
  ASSIGN_OR_RETURN(kernel, site.registry->Find("identity"));
  const auto element_bytes = static_cast<int64_t>(ElementBytes(DataType::kFloat32));
  const int64_t copied = BytesToCopy(bytes, *site.device);
  const int64_t elements = CeilDivide(copied, 2 * element_bytes);
  Problem problem;
  ASSIGN_OR_RETURN(problem, MakeProblem(*kernel->op, {{DataType::kFloat32, {elements}}}, {}));
  std::unique_ptr<CopyCeiling> ceiling(new CopyCeiling(std::move(problem)));
  ASSIGN_OR_RETURN(ceiling->sets_, OperandSets::Create({.problem = &ceiling->problem_,
                                                        .sets = SetsFor(copied, *site.device),
                                                        .period = kPeriodElements},
                                                       *site.device, site.stream, site.pool));
  RETURN_IF_ERROR(ceiling->AddRows(site));
  return ceiling;
}

absl::Status CopyCeiling::AddRows(const Site& site) {
  const absl::StatusOr<const Kernel*> kernel = site.registry->Find("identity");
  absl::Status status = absl::NotFoundError(
      absl::StrCat("identity has no fast implementation for ", site.device->name));
  for (const int id : (*kernel)->rows) {
    const Row& row = site.registry->rows()[static_cast<size_t>(id)];
    const char* const name = row.implementation.name;
    if (!IsOwnCopy(row, *site.device) ||
        !site.registry->Select(**kernel, name, problem_, *site.device).ok())
      continue;
    absl::StatusOr<Copier> copier = Ready(site, row.implementation);
    if (copier.ok())
      copiers_.push_back(*std::move(copier));
    else
      status = copier.status();
  }
  if (copiers_.empty()) return status;
  const auto fastest = std::min_element(
      copiers_.begin(), copiers_.end(),
      [](const Copier& a, const Copier& b) { return a.timer->launch_ns() < b.timer->launch_ns(); });
  const double kept_ns = kSlower * fastest->timer->launch_ns();
  std::erase_if(copiers_,
                [&](const Copier& copier) { return copier.timer->launch_ns() > kept_ns; });
  return absl::OkStatus();
}

absl::StatusOr<CopyCeiling::Copier> CopyCeiling::Ready(const Site& site,
                                                       const Implementation& row) {
  Copier copier;
  const auto allocate = [&](size_t bytes) -> absl::StatusOr<void*> {
    ASSIGN_OR_RETURN(copier.workspace, site.stream->AllocateMemory(bytes));
    return copier.workspace.data();
  };
  ASSIGN_OR_RETURN(copier.plan,
                   MakePlanOn({site.stream, site.device, &(*sets_)[0], allocate}, row, problem_));
  RETURN_IF_ERROR(allocate(copier.plan->traits().workspace_bytes).status());
  copier.timer =
      std::make_unique<RowTimer>(copier.plan, RowTimer::Shared{site.stream, &*sets_, site.clock},
                                 kTiming, copier.workspace.data());
  RETURN_IF_ERROR(copier.timer->First());
  RETURN_IF_ERROR(copier.timer->WarmUp());
  return copier;
}

absl::Status CopyCeiling::Sample() {
  return copiers_[static_cast<size_t>(samples_++) % copiers_.size()].timer->Sample();
}

double CopyCeiling::bytes_per_second() const {
  const auto bytes = static_cast<double>(problem_.inputs[0].bytes() * 2);
  double best = 0;
  for (const Copier& copier : copiers_) {
    const double copy_ns = Summarize(copier.timer->samples_ns()).p10;
    if (copy_ns > 0) best = std::max(best, bytes * 1e9 / copy_ns);
  }
  return best;
}

int64_t CopyCeiling::spent_ns() const {
  int64_t sum = 0;
  for (const Copier& copier : copiers_) sum += copier.timer->spent_ns();
  return sum;
}

bool CopiesPassCaches(int64_t bytes, const DeviceProperties& device) {
  const int64_t copied = BytesToCopy(bytes, device);
  const int64_t touched = SaturatingMultiply(copied, SetsFor(copied, device));
  return touched >= std::min(WholeMemory(device) / 2, 2 * CacheBytes(device));
}

}  // namespace warpcall::inspect
