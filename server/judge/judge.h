// Judges a kernel of a caller's: compiles it, tries it on problems, times it beside the server's
// own, and says what came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device_properties.h"
#include "kernels/manifest/kernel_manifest.h"
#include "kernels/multiply_adds.h"
#include "kernels/registry.h"
#include "server/engine/clock.h"
#include "server/inspect/surroundings.h"
#include "server/judge/code.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::judge {

struct Candidate {
  const manifest::KernelManifest* manifest = nullptr;
  std::string code;
  // Of the manifest's op; empty: drawn.
  std::vector<Problem> problems;
  uint64_t seed = 0;                      // what is drawn follows from it
  int iterations = 0;                     // samples of each timing; 0: kIterations
  std::vector<std::string> compare_with;  // empty: the fastest of the library and of the server's
  bool check_only = false;
  bool with_files = false;
  int64_t deadline_ns = kNoDeadline;  // by the site's clock
  int64_t limit_ns = 0;  // the server's own limit, if that sets the deadline; 0: the caller does
};
inline constexpr int kIterations = 20;
// As the only one in compare_with: no others.
inline constexpr char kNoOthers[] = "none";

struct JudgeSite {
  const Registry* registry = nullptr;
  DeviceProperties device;  // of the one that `open` returns; else of the one to compile for
  CompileCode compile;
  // Called once the code is compiled. It may wait until the device is open. Null: none runs
  // candidates.
  std::function<absl::StatusOr<RunSite>()> open;
  inspect::Surroundings* surroundings = nullptr;  // as BenchmarkSite's, as the next one
  MultiplyAddsSource multiply_adds = nullptr;
  Clock clock = MonotonicNs;
  absl::Duration launch_time_max = absl::Seconds(2);  // push_run_seconds
  // Called with each event but the verdict.
  std::function<void(const v1::PushEvent&)> tell;
  // Called on another thread with the verdict on a launch that does not end. It does not return:
  // the launch cannot be ended but with its process.
  std::function<void(const v1::PushVerdict&)> give_up;
};

// 32 hexadecimal digits of the SHA-256 of the manifest, canonical, and the code.
std::string DigestOf(const manifest::KernelManifest& manifest, const std::string& code);

// The first of Hopper's: what candidates are compiled for where no GPU runs them.
DeviceProperties HopperProperties();

// The verdict on what is wrong before there is a manifest.
v1::PushVerdict VerdictOnManifest(const std::string& reason);

// The calling thread becomes the device's once that is open. The verdict's stamp lacks the versions
// of the server and of CUDA. At the deadline the verdict is TIMEOUT if the server's limit sets it:
// the candidate takes too long. If the caller sets it nothing is known of the candidate:
// DEADLINE_EXCEEDED, which says what was stopped and how long compiling took.
absl::StatusOr<v1::PushVerdict> JudgeCandidate(const JudgeSite& site, const Candidate& candidate);

}  // namespace warpcall::judge
