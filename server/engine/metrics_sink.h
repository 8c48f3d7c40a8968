// Interface through which the rest of the server reports to the metrics, once per request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/multiply_adds.h"
#include "kernels/op.h"
#include "server/engine/finding.h"
#include "server/engine/refusal.h"

namespace warpcall {

// Why "auto" chose its implementation: the label `why` of warpcall_auto_choices_total.
enum class AutoChoice : uint8_t {
  kNone,   // the request named a row or a family, or none was chosen
  kOrder,  // the op's order of preference
  kTuned,  // measurements of such problems
};

// Why a tensor that stayed on a device ended: the label `why` of warpcall_resident_ended_total.
enum class ResidentEnd : uint8_t { kFreed, kExpired, kEvicted, kLost };
inline constexpr int kResidentEndCount = 4;
// "freed", "expired", "evicted", "lost".
const char* ResidentEndName(ResidentEnd why);

using TraceId = std::array<uint8_t, 16>;  // W3C Trace Context

// How the steps of a graph ran.
struct GraphRun {
  std::shared_ptr<const StepGraph> graph;
  std::vector<LaunchShape> launches = {};  // by step; empty until they are known
  std::vector<int64_t> step_ns = {};       // by step; empty where they were not timed
  std::vector<std::string> names = {};     // by step; in the record of a traced request
  bool replayed = false;                   // as one recording
};

// The life of one request, filled in as it advances. Fields that it did not reach keep their
// defaults.
struct RequestTrace {
  int kernel = -1;  // Kernel::id; -1: refused before it was known
  int row = -1;     // Row::id
  int device = -1;  // position in the engine's list
  AutoChoice auto_choice = AutoChoice::kNone;
  DataType data_type = DataType::kFloat32;  // the first input's
  absl::StatusCode code = absl::StatusCode::kOk;
  RejectReason reject_reason = RejectReason::kNone;  // from the status with which the request ended
  bool ran = false;  // the kernel ran to its end; the times below are all valid

  int64_t queue_began_ns = 0;  // by the engine's clock
  int64_t device_done_ns = 0;  // likewise: `device_ns` ended
  int64_t queue_ns = 0;
  int64_t copy_in_ns = 0;
  int64_t h2d_ns = 0;
  int64_t kernel_ns = 0;
  int64_t d2h_ns = 0;
  int64_t device_ns = 0;  // first enqueued -> seen complete, by the host's clock
  int64_t total_ns = 0;   // received -> about to be answered
  // Counted by CopyOnHost where bytes are copied. On their way out bytes are copied to shared
  // memory of a client alone.
  int64_t copy_in_bytes = 0;
  int64_t copy_out_bytes = 0;
  Work work;
  LaunchShape launch;
  std::shared_ptr<GraphRun> graph;  // null: the request is no graph
  TraceId trace_id = {};            // all 0: not traced
};

// Calls that measure devices instead of using them: the label `method` of
// warpcall_inspections_total.
enum class Inspection : uint8_t { kBenchmark, kProfile, kDescribe, kTune, kPush };
inline constexpr int kInspectionCount = 5;
// "benchmark", "profile", "describe", "tune", "push".
const char* InspectionName(Inspection kind);

// Outcome of an inspection. Texts from callers are unchecked and may be long.
struct InspectionEnd {
  Inspection kind = Inspection::kBenchmark;
  absl::StatusCode code = absl::StatusCode::kOk;
  RejectReason reason = RejectReason::kNone;
  int kernel = -1;             // Kernel::id; -1: refused before it was known
  int device = -1;             // position in the engine's list
  int64_t total_ns = 0;        // received -> about to be answered
  std::string principal = {};  // the caller's name; empty: none, or the log has no line of the call
  std::string push = {};       // of a Push: the name of its kernel
  std::string verdict = {};    // of a Push: its status; empty: not judged
};

// Resources that an inspection has used since its last report.
struct InspectionUse {
  Inspection kind = Inspection::kBenchmark;
  int kernel = -1;        // Kernel::id
  int64_t cpu_ns = 0;     // CPU time of its process, all threads together
  int64_t device_ns = 0;  // launches and copies that it timed, without warm-up and checks
};

// A part of a push's judgement: the label `stage` of warpcall_push_seconds.
enum class PushStage : uint8_t { kCompile, kCheck, kTime };
inline constexpr int kPushStageCount = 3;
// "compile", "check", "time".
const char* PushStageName(PushStage stage);

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  // Called exactly once for every request that reached the server, by Execute, ExecuteStream or
  // ModelInfer, on any thread; must not block.
  virtual void Record(const RequestTrace& trace) = 0;
  // Called likewise for every Put and Get, which are no requests; counts copies and refusals.
  virtual void RecordTransfer(const RequestTrace& trace) = 0;
  // Called likewise for every Benchmark, Profile, Describe, Tune and Push; `reason` as in
  // RequestTrace.
  virtual void RecordInspection(const InspectionEnd& end) = 0;
  // May be called any number of times while such a call goes on. Ignores a kernel outside the
  // registry.
  virtual void RecordInspectionUse(const InspectionUse& use) = 0;
  // Called once for each push that was judged.
  virtual void RecordPush(Finding finding) = 0;
  // Called for each data type of a push that was compiled, and each problem checked or timed.
  virtual void RecordPushStage(PushStage stage, int64_t ns) = 0;
  // Records the share of the possible warps, 0 to 1, that an implementation's kernels kept resident
  // when profiled on a device. Ignores implementations and devices without such a share.
  virtual void SetAchievedOccupancy(int row, int device, double ratio) = 0;
  // Called once for each connection that is refused: kConnections.
  virtual void RecordRefusedConnection() = 0;
};

// How often something of one kind happened, since the process began.
struct LabelledCount {
  std::string label;
  int64_t count;
};

// Errors of one kind, since the process began.
struct DeviceErrorCount {
  const char* code;  // "cudaErrorIllegalAddress"
  int64_t count;
};

// Measured speed of a copy within a device's memory.
struct Bandwidth {
  double bytes_per_second = 0;  // 0: not measured yet
  double noise = 1;             // relative gap to the second-best reading; 1: there is none
};

// Measured speed of multiply-adds on a device, FLOP/s by Arithmetic; 0: not measured yet.
using MultiplyAddRates = std::array<double, kArithmeticCount>;

// Gauges of one device, read at scrape time.
struct DeviceSnapshot {
  int64_t queue_depth = 0;
  int64_t queue_bytes = 0;
  double queue_work_seconds = 0;  // predicted lane-seconds of the waiting requests
  double queue_oldest_age_seconds = 0;
  int64_t staging_total_bytes = 0;
  int64_t staging_used_bytes = 0;
  int64_t memory_total_bytes = 0;
  int64_t memory_used_bytes = 0;
  int64_t memory_reserved_bytes = 0;
  double work_seconds = 0;  // predicted work on its books
  bool healthy = true;
  int64_t restarts = 0;  // restarts of the worker process that serves it
  double busy_seconds =
      0;  // since start: time in which at least one kernel or copy of a lane was running
  Bandwidth bandwidth_ceiling;
  MultiplyAddRates multiply_add_ceilings = {};
  int64_t resident_total_bytes = 0;  // of tensors that may stay on the device
  int64_t resident_used_bytes = 0;
  int64_t resident_tensors = 0;
  std::array<int64_t, kResidentEndCount> residents_ended = {};
};

}  // namespace warpcall
