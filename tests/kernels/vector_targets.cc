#include "tests/kernels/vector_targets.h"

// The list of targets must be cut before highway.h reads it.
// clang-format off
#include "kernels/cpu/simd_targets.h"
#include "hwy/highway.h"
// clang-format on

namespace warpcall::testing {
namespace {

// 0: every target that the CPU has.
void Choose(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace

std::vector<int64_t> VectorTargets() { return hwy::SupportedAndGeneratedTargets(); }

const char* VectorTargetName(int64_t target) { return hwy::TargetName(target); }

ScopedVectorTarget::ScopedVectorTarget(int64_t target) { Choose(target); }

ScopedVectorTarget::~ScopedVectorTarget() { Choose(0); }

}  // namespace warpcall::testing
