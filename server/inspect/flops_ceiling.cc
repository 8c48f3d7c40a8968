#include "server/inspect/flops_ceiling.h"

#include <algorithm>
#include <utility>

#include "kernels/common/saturate.h"
#include "kernels/common/status_macros.h"
#include "kernels/cpu/multiply_adds.h"
#include "server/engine/clock.h"
#include "server/inspect/summary.h"

namespace warpcall::inspect {
namespace {

// Waking the threads costs some percent of it.
constexpr int64_t kRounds = 500;
// Sides of the matrices. On a GPU of today: 1 to 3 ms of work, and 400 MB.
constexpr int64_t kCpuSide = 1024;
constexpr int64_t kGpuSide = 8192;
constexpr int64_t kGpuSideFloat32 = 4096;
// Chains of functions in bfloat16 come to 5 FLOP a byte, rows of a matrix times a vector to 1.
constexpr int64_t kFlopsPerByte = 8;

int64_t SideOf(DataType type, const DeviceProperties& device) {
  if (device.kind == DeviceKind::kCpu) return kCpuSide;
  return type == DataType::kFloat32 ? kGpuSideFloat32 : kGpuSide;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FlopsCeiling>> FlopsCeiling::Create(const FastestRows::Site& site,
                                                                   DataType type) {
  auto ceiling = std::make_unique<FlopsCeiling>();
  if (site.device->kind == DeviceKind::kCpu && type == DataType::kFloat32) {
    ceiling->pool_ = std::make_unique<cpu::ThreadPool>(std::max(1, site.device->multiprocessors));
    return ceiling;
  }
  const int64_t side = SideOf(type, *site.device);
  const TensorSpec matrix = {type, {side, side}};
  ASSIGN_OR_RETURN(ceiling->products_,
                   FastestRows::Create(site, "matmul", {matrix, matrix}, /*sets=*/1));
  return ceiling;
}

absl::Status FlopsCeiling::Sample() {
  if (products_ != nullptr) return products_->Sample();
  const int64_t start_ns = MonotonicNs();
  const int64_t flops = cpu::MultiplyAdds(*pool_, kRounds);
  const int64_t took_ns = MonotonicNs() - start_ns;
  multiply_adds_ns_ += took_ns;
  ns_per_flop_.push_back(static_cast<double>(took_ns) / static_cast<double>(flops));
  return absl::OkStatus();
}

double FlopsCeiling::flops_per_second() const {
  double ns_per_flop = 0;
  if (products_ == nullptr) {
    ns_per_flop = Summarize(ns_per_flop_).p10;
  } else {
    const auto side = static_cast<double>(products_->problem().outputs[0].dims[0]);
    ns_per_flop = products_->launch_ns() / (2 * side * side * side);
  }
  return ns_per_flop > 0 ? 1e9 / ns_per_flop : 0;
}

int64_t FlopsCeiling::samples() const {
  return products_ != nullptr ? products_->samples() : static_cast<int64_t>(ns_per_flop_.size());
}

int64_t FlopsCeiling::spent_ns() const {
  return products_ != nullptr ? products_->spent_ns() : multiply_adds_ns_;
}

bool ArithmeticMayBound(const Work& work) {
  return work.flops > SaturatingMultiply(work.bytes, kFlopsPerByte);
}

}  // namespace warpcall::inspect
