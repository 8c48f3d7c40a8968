#include "server/engine/metrics_sink.h"

namespace warpcall {

const char* RejectReasonName(RejectReason reason) {
  switch (reason) {
    case RejectReason::kNone:
      return "";
    case RejectReason::kMessageBytes:
      return "message_bytes";
    case RejectReason::kQueueRequests:
      return "queue_requests";
    case RejectReason::kQueueBytes:
      return "queue_bytes";
    case RejectReason::kQueueWork:
      return "queue_work";
    case RejectReason::kStagingBytes:
      return "staging_bytes";
    case RejectReason::kDeviceMemory:
      return "device_memory";
    case RejectReason::kDeadline:
      return "deadline";
    case RejectReason::kDeadlineUnmeetable:
      return "deadline_unmeetable";
    case RejectReason::kDraining:
      return "draining";
    case RejectReason::kRunTime:
      return "run_time";
    case RejectReason::kQuota:
      return "quota";
    case RejectReason::kInspectQueue:
      return "inspect_queue";
    case RejectReason::kConnections:
      return "connections";
    case RejectReason::kDeviceLost:
      return "device_lost";
  }
  return "";
}

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
