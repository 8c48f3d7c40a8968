#include "server/inspect/flops_ceiling.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/common/saturate.h"
#include "kernels/cpu/multiply_adds.h"
#include "proto/common/status_macros.h"
#include "server/engine/clock.h"
#include "server/inspect/summary.h"

namespace warpcall::inspect {
namespace {

// Waking the threads costs some percent of the rounds' time.
constexpr int64_t kRounds = 500;
// Sides of the matrices. On a GPU of today: 1 to 3 ms of work, and 400 MB.
constexpr int64_t kCpuSide = 1024;
constexpr int64_t kGpuSide = 8192;
constexpr int64_t kGpuSideFloat32 = 4096;
// Chains of functions in bfloat16 have 5 FLOP a byte, a matrix times a vector has 1.
constexpr int64_t kFlopsPerByte = 8;

FastestRows::Asked ProductIn(Arithmetic arithmetic, const DeviceProperties& device) {
  const bool is_float32 = arithmetic == Arithmetic::kFloat32 || arithmetic == Arithmetic::kTf32;
  const DataType type = is_float32                           ? DataType::kFloat32
                        : arithmetic == Arithmetic::kFloat16 ? DataType::kFloat16
                                                             : DataType::kBFloat16;
  const int64_t gpu_side = is_float32 ? kGpuSideFloat32 : kGpuSide;
  const int64_t side = device.kind == DeviceKind::kCpu ? kCpuSide : gpu_side;
  FastestRows::Asked asked = {"matmul", {{type, {side, side}}, {type, {side, side}}}};
  if (arithmetic == Arithmetic::kTf32)
    asked.attributes.push_back({"precision", std::string("tf32")});
  return asked;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FlopsCeiling>> FlopsCeiling::Create(
    const FastestRows::Site& site, Arithmetic arithmetic, const MultiplyAddsSource& source) {
  auto ceiling = std::make_unique<FlopsCeiling>();
  ceiling->stream_ = site.stream;
  ceiling->clock_ = site.clock;
  // A CPU computes in float32 where tf32 is allowed.
  if (site.device->kind == DeviceKind::kCpu &&
      (arithmetic == Arithmetic::kFloat32 || arithmetic == Arithmetic::kTf32)) {
    ceiling->pool_ = std::make_unique<cpu::ThreadPool>(std::max(1, site.device->multiprocessors));
    return ceiling;
  }
  bool taken;
  ASSIGN_OR_RETURN(taken, Take(source, arithmetic, *site.device, &ceiling->multiply_adds_));
  if (taken) return ceiling;
  ASSIGN_OR_RETURN(ceiling->products_,
                   FastestRows::Create(site, ProductIn(arithmetic, *site.device), /*sets=*/1));
  return ceiling;
}

absl::StatusOr<bool> FlopsCeiling::Take(const MultiplyAddsSource& source, Arithmetic arithmetic,
                                        const DeviceProperties& device, MultiplyAdds* taken) {
  if (source == nullptr) return false;
  absl::StatusOr<MultiplyAdds> made = source(arithmetic, device);
  if (absl::IsUnimplemented(made.status())) return false;
  RETURN_IF_ERROR(made.status());
  *taken = *std::move(made);
  return true;
}

absl::Status FlopsCeiling::Sample() {
  if (products_ != nullptr) return products_->Sample();
  return pool_ != nullptr ? SampleThreads() : SampleDevice();
}

absl::Status FlopsCeiling::SampleThreads() {
  const int64_t start_ns = MonotonicNs();
  const int64_t flops = cpu::MultiplyAdds(*pool_, kRounds);
  const int64_t took_ns = MonotonicNs() - start_ns;
  multiply_adds_ns_ += took_ns;
  Record(flops, took_ns);
  return absl::OkStatus();
}

absl::Status FlopsCeiling::SampleDevice() {
  const int64_t start_ns = clock_();
  RETURN_IF_ERROR(RunPhase(stream_, Milestone::kKernelDone, [this] {
    return multiply_adds_.plan->Enqueue(no_operands_, {.stream = stream_->native_handle()});
  }));
  multiply_adds_ns_ += clock_() - start_ns;
  Record(multiply_adds_.flops, stream_->Times().kernel_ns);
  return absl::OkStatus();
}

void FlopsCeiling::Record(int64_t flops, int64_t took_ns) {
  ns_per_flop_.push_back(static_cast<double>(took_ns) / static_cast<double>(flops));
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
