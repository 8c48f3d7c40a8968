// A sink over the made-up registry with one device of each kind.
#pragma once

#include <utility>
#include <vector>

#include "server/metrics/prometheus_sink.h"
#include "tests/server/metrics/made_up_registry.h"
#include "tests/server/metrics/metrics_text.h"

namespace warpcall::testing {

inline constexpr int kAlpha = 0;
inline constexpr int kBeta = 1;
inline constexpr int kAlphaTiled = 0;
inline constexpr int kAlphaPlain = 1;
inline constexpr int kBetaPlain = 2;
inline constexpr int kCpuDevice = 0;
inline constexpr int kCudaDevice = 1;

inline PrometheusSink::Options SinkOptions(std::vector<DeviceSnapshot> snapshots = {}) {
  PrometheusSink::Options options;
  options.devices = {{"cpu", DeviceKind::kCpu}, {"cuda:0", DeviceKind::kCuda}};
  options.build = {"1.2.3", "gcc 12", "13.0"};
  options.snapshot_devices = [snapshots = std::move(snapshots)] { return snapshots; };
  options.auth_refusals = [] { return std::vector<LabelledCount>{{"method", 0}}; };
  options.reload_failures = [] { return std::vector<LabelledCount>{{"policy_file", 0}}; };
  return options;
}

inline RequestTrace RunTrace(int kernel, int row, int device) {
  RequestTrace trace;
  trace.kernel = kernel;
  trace.row = row;
  trace.device = device;
  trace.ran = true;
  return trace;
}

inline Samples Scrape(const PrometheusSink& sink) {
  return ParseMetricsText(sink.Scrape()).samples;
}

}  // namespace warpcall::testing
