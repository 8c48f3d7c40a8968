#include "server/engine/metrics_sink.h"

namespace warpcall {

const char* InspectionName(Inspection kind) {
  switch (kind) {
    case Inspection::kBenchmark:
      return "benchmark";
    case Inspection::kProfile:
      return "profile";
    case Inspection::kDescribe:
      return "describe";
    case Inspection::kTune:
      return "tune";
  }
  return "unknown";
}

}  // namespace warpcall
