// What a judge finds of a kernel that was pushed: the status of its verdict, and the label `status`
// of warpcall_pushes_total.
#pragma once

#include <cstdint>

namespace warpcall {

enum class Finding : uint8_t {
  kPassed,
  kInvalidManifest,
  kCompileError,
  kNotSupported,  // nothing here can run it, or none of its problems is known
  kIncorrect,
  kInputModified,
  kOutOfBounds,
  kNondeterministic,
  kRuntimeError,
  kTimeout,
  kBelowFloor,     // faster than the device allows
  kInternalError,  // the judge's fault
};
inline constexpr int kFindingCount = 12;

// "PASSED", "INVALID_MANIFEST", ...
const char* FindingName(Finding finding);

}  // namespace warpcall
