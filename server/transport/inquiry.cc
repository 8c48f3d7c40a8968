#include "server/transport/inquiry.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/engine/refusal.h"
#include "server/inspect/profile.h"

namespace warpcall {
namespace {

// Days, where a call may take minutes.
constexpr double kDeviceNsMax = 1e15;

}  // namespace

bool IsOnThisMachine(absl::string_view peer) {
  // gRPC 1.51 shows an IPv4 peer of a socket for both families as ipv4.
  for (const absl::string_view prefix : {"unix:", "ipv4:127.", "ipv6:[::1]:", "ipv6:%5B::1%5D:"})
    if (absl::StartsWith(peer, prefix)) return true;
  return false;
}

absl::Status CheckInspectAccess(InspectAccess access, absl::string_view peer) {
  if (access == InspectAccess::kOn || (access == InspectAccess::kLocal && IsOnThisMachine(peer)))
    return absl::OkStatus();
  if (access == InspectAccess::kLocal)
    return absl::PermissionDeniedError(absl::StrCat(
        "Benchmark, Tune, Profile and Describe are for callers on this server's machine, which ",
        peer, " is not (inspect is local)"));
  return absl::PermissionDeniedError(
      "Benchmark, Tune, Profile and Describe are off on this server (inspect is off)");
}

absl::Status ParseSmall(const std::string& bytes, google::protobuf::Message* request) {
  if (request->ParseFromString(bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the message is not a valid ",
                                                 request->GetDescriptor()->name(),
                                                 ": protobuf cannot parse it"));
}

int64_t DeviceNsOf(Inspection kind, const std::string& response) {
  double ns = 0;
  v1::BenchmarkResponse benchmark;
  if ((kind == Inspection::kBenchmark || kind == Inspection::kTune) &&
      benchmark.ParseFromString(response)) {
    for (const v1::BenchmarkResult& result : benchmark.results())
      ns += result.mean_ns() * static_cast<double>(result.iterations()) *
            static_cast<double>(result.launches_per_iteration());
  }
  v1::ProfileResponse profile;
  if (kind == Inspection::kProfile && profile.ParseFromString(response)) {
    for (const v1::ProfileRow& row : profile.rows())
      if (row.kind() == inspect::kKernelRow || row.kind() == inspect::kCopyRow ||
          row.kind() == inspect::kSetRow)
        ns += static_cast<double>(row.total_ns());
  }
  // The profiled code may have overwritten any memory of the process that reports this time.
  return ns > 0 ? static_cast<int64_t>(std::min(ns, kDeviceNsMax)) : 0;
}

absl::Status CheckOperandBytes(const ExecuteDeps& deps, absl::string_view doing, int64_t bytes,
                               const Device& device) {
  const int64_t half = device.properties().memory_bytes / 2;
  const bool over_flag = bytes > deps.limits.benchmark_bytes_max;
  if (!over_flag && bytes <= half) return absl::OkStatus();
  const std::string limit =
      over_flag ? absl::StrCat(deps.limits.benchmark_bytes_max, " (benchmark_mib)")
                : absl::StrCat(half, ", half of ", device.properties().name, "'s memory");
  return WithRetryPushback(
      absl::ResourceExhaustedError(
          absl::StrCat(doing, " these shapes takes ", bytes, " bytes; the limit is ", limit)),
      kNeverRetry);
}

}  // namespace warpcall
