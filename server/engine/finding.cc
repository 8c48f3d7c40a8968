#include "server/engine/finding.h"

namespace warpcall {

const char* FindingName(Finding finding) {
  switch (finding) {
    case Finding::kPassed:
      return "PASSED";
    case Finding::kInvalidManifest:
      return "INVALID_MANIFEST";
    case Finding::kCompileError:
      return "COMPILE_ERROR";
    case Finding::kNotSupported:
      return "NOT_SUPPORTED";
    case Finding::kIncorrect:
      return "INCORRECT_NUMERICAL";
    case Finding::kInputModified:
      return "INPUT_MODIFIED";
    case Finding::kOutOfBounds:
      return "OUT_OF_BOUNDS";
    case Finding::kNondeterministic:
      return "NONDETERMINISTIC";
    case Finding::kRuntimeError:
      return "RUNTIME_ERROR";
    case Finding::kTimeout:
      return "TIMEOUT";
    case Finding::kBelowFloor:
      return "BELOW_FLOOR";
    case Finding::kInternalError:
      break;
  }
  return "INTERNAL_ERROR";
}

}  // namespace warpcall
