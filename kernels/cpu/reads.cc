// Loads and exclusive ors, which take less time than the loads. Four of them at a time depend on
// nothing but their own loads.
#include "kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reads.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/reads.h"
#include "kernels/op.h"

HWY_BEFORE_NAMESPACE();
namespace warpcall::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Words of a vector, at most: four vectors are no more than the alignment.
constexpr size_t kWordsMax = 8;
static_assert(kOperandAlignmentBytes % (4 * kWordsMax * sizeof(uint64_t)) == 0);

uint64_t Xor(const uint64_t* words, int64_t count) {
  const hn::CappedTag<uint64_t, kWordsMax> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
  for (int64_t i = 0; i < count; i += 4 * lanes) {
    a = hn::Xor(a, hn::Load(d, words + i));
    b = hn::Xor(b, hn::Load(d, words + i + lanes));
    c = hn::Xor(c, hn::Load(d, words + i + 2 * lanes));
    e = hn::Xor(e, hn::Load(d, words + i + 3 * lanes));
  }
  HWY_ALIGN uint64_t rest[kWordsMax] = {};
  hn::Store(hn::Xor(hn::Xor(a, b), hn::Xor(c, e)), d, rest);
  uint64_t bits = 0;
  for (const uint64_t word : rest) bits ^= word;
  return bits;
}

}  // namespace
}  // namespace warpcall::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <atomic>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"

namespace warpcall::cpu {
namespace {

HWY_EXPORT(Xor);

constexpr auto kUnitBytes = static_cast<int64_t>(kOperandAlignmentBytes);
constexpr auto kUnitWords = kUnitBytes / static_cast<int64_t>(sizeof(uint64_t));
// A thread reads 256 KiB in some 20 us.
constexpr int64_t kGrainUnits = 1024;

}  // namespace

uint64_t ReadMemory(const Workers& workers, const void* data, int64_t bytes) {
  WARPCALL_DCHECK(bytes % kUnitBytes == 0 && reinterpret_cast<uintptr_t>(data) % kUnitBytes == 0,
                  bytes);
  const auto* const words = static_cast<const uint64_t*>(data);
  std::atomic<uint64_t> bits{0};
  workers.ParallelFor(bytes / kUnitBytes, kGrainUnits, [&](int64_t begin, int64_t end) {
    bits.fetch_xor(
        HWY_DYNAMIC_DISPATCH(Xor)(words + begin * kUnitWords, (end - begin) * kUnitWords),
        std::memory_order_relaxed);
  });
  return bits.load(std::memory_order_relaxed);
}

absl::StatusOr<PlanPtr> ReadsOn(int64_t bytes, const DeviceProperties& device) {
  WARPCALL_DCHECK(bytes > 0 && bytes % kUnitBytes == 0, bytes);
  if (device.kind != DeviceKind::kCpu)
    return absl::UnimplementedError(absl::StrCat("the CPU cannot read for ", device.name));
  return NewPlan({}, [bytes](const Operands& operands, const LaunchContext& context) {
    // Keeps the compiler from removing reads that are otherwise unused.
    volatile uint64_t kept = ReadMemory(WorkersOf(context), operands.inputs[0], bytes);
    static_cast<void>(kept);
    return absl::OkStatus();
  });
}

}  // namespace warpcall::cpu
#endif  // HWY_ONCE
