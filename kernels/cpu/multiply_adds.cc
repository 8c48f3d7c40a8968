// Independent chains of multiply-adds in registers, as many as hide the latency of one: two units
// with a latency of four or five take ten.
#include "kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/multiply_adds.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/multiply_adds.h"

HWY_BEFORE_NAMESPACE();
namespace warpcall::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kChains = 10;
// Some microsecond at 3 GHz.
constexpr int64_t kStepsOfRound = 600;

// FLOPs.
int64_t Chains(int64_t rounds) {
  const hn::ScalableTag<float> d;
  // Converges to 1, so that no value is subnormal or infinite.
  const auto factor = hn::Set(d, 0.5f);
  const auto term = hn::Set(d, 0.5f);
  auto a0 = hn::Iota(d, 1), a1 = hn::Iota(d, 2), a2 = hn::Iota(d, 3), a3 = hn::Iota(d, 4);
  auto a4 = hn::Iota(d, 5), a5 = hn::Iota(d, 6), a6 = hn::Iota(d, 7), a7 = hn::Iota(d, 8);
  auto a8 = hn::Iota(d, 9), a9 = hn::Iota(d, 10);
  const int64_t steps = rounds * kStepsOfRound;
  for (int64_t i = 0; i < steps; ++i) {
    a0 = hn::MulAdd(a0, factor, term);
    a1 = hn::MulAdd(a1, factor, term);
    a2 = hn::MulAdd(a2, factor, term);
    a3 = hn::MulAdd(a3, factor, term);
    a4 = hn::MulAdd(a4, factor, term);
    a5 = hn::MulAdd(a5, factor, term);
    a6 = hn::MulAdd(a6, factor, term);
    a7 = hn::MulAdd(a7, factor, term);
    a8 = hn::MulAdd(a8, factor, term);
    a9 = hn::MulAdd(a9, factor, term);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
                           hn::Add(hn::Add(a4, a5), hn::Add(hn::Add(a6, a7), hn::Add(a8, a9))));
  // Keeps the compiler from removing an unused computation.
  volatile float kept = hn::GetLane(sum);
  static_cast<void>(kept);
  return 2 * kChains * steps * static_cast<int64_t>(hn::Lanes(d));
}

}  // namespace
}  // namespace warpcall::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <atomic>

namespace warpcall::cpu {
namespace {

HWY_EXPORT(Chains);

}  // namespace

int64_t MultiplyAdds(ThreadPool& pool, int64_t rounds) {
  std::atomic<int64_t> flops{0};
  // Small pieces, so that threads need not wait for one that starts late.
  const int64_t pieces = int64_t{4} * pool.threads();
  pool.ParallelFor(pieces, 1, [&](int64_t begin, int64_t end) {
    flops += HWY_DYNAMIC_DISPATCH(Chains)((end - begin) * rounds / 4 + 1);
  });
  return flops.load();
}

}  // namespace warpcall::cpu
#endif  // HWY_ONCE
