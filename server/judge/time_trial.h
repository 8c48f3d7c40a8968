// Times a candidate beside the server's own implementations, and asks if it can be that fast.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/manifest/kernel_manifest.h"
#include "kernels/multiply_adds.h"
#include "kernels/plan.h"
#include "kernels/registry.h"
#include "server/engine/clock.h"
#include "server/engine/finding.h"
#include "server/inspect/surroundings.h"
#include "server/judge/launch_watch.h"
#include "server/runtime/conditions.h"
#include "server/runtime/device.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::judge {

struct TimeSite {
  const Registry* registry = nullptr;
  Device* device = nullptr;
  inspect::Surroundings* surroundings = nullptr;  // as BenchmarkSite's, as the next two
  ConditionReader* conditions = nullptr;
  MultiplyAddsSource multiply_adds = nullptr;
  Clock clock = MonotonicNs;
  cpu::ThreadPool* pool = nullptr;
  LaunchWatch* watch = nullptr;  // began before; null: a launch may take as long as it likes
};

struct TimePlan {
  const manifest::KernelManifest* manifest = nullptr;
  const Problem* problem = nullptr;
  PlanPtr plan;
  int iterations = 1;
  std::vector<std::string> compare_with;  // as Candidate's
  uint64_t secret = 0;
  int64_t deadline_ns = kNoDeadline;
};

struct TimeResult {
  Finding finding = Finding::kPassed;
  std::string detail;
  std::vector<v1::BenchmarkResult> results;  // the candidate's first
  double ceiling_bytes_per_second = 0;
  double flops_ceiling = 0;
  double floor_ns = 0;  // 0: not known
  bool unstable = false;
  bool cold = false;
  double speedup = 0;  // time of the fastest other one over the candidate's; 0: there is none
  v1::RunStamp stamp;
};

// A kernel faster than this part of the floor is not believed.
inline constexpr double kFloorShare = 0.9;

// The time that the problem takes at least: to move its bytes through the memory's pins, unless
// they may lie in a cache, or to compute it on the fastest unit. 0: not known.
double FloorNs(const Work& work, DataType type, bool cold, const DeviceProperties& device);

// An error is the judge's. The calling thread becomes the device's.
absl::StatusOr<TimeResult> RunTimeTrial(const TimeSite& site, const TimePlan& plan);

}  // namespace warpcall::judge
