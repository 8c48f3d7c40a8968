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
    case Inspection::kPush:
      return "push";
  }
  return "unknown";
}

const char* PushStageName(PushStage stage) {
  static constexpr const char* kNames[kPushStageCount] = {"compile", "check", "time"};
  return kNames[static_cast<size_t>(stage)];
}

const char* ResidentEndName(ResidentEnd why) {
  static constexpr const char* kNames[kResidentEndCount] = {"freed", "expired", "evicted", "lost"};
  return kNames[static_cast<size_t>(why)];
}

}  // namespace warpcall
