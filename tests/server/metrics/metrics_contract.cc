#include "tests/server/metrics/metrics_contract.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace warpcall::testing {
namespace {

struct Family {
  const char* name;
  const char* type;
  const char* labels;  // separated by commas, in alphabetical order
  bool gpu_only = false;
  bool with_first = false;  // appears with its first observation
};

constexpr bool kGpuOnly = true;
constexpr bool kWithFirst = true;

constexpr Family kContract[] = {
    {"warpcall_requests_total", "counter", "code,implementation,kernel"},
    {"warpcall_request_duration_seconds", "histogram", "implementation,kernel", false, kWithFirst},
    {"warpcall_phase_duration_seconds", "histogram", "kernel,phase", false, kWithFirst},
    {"warpcall_kernel_duration_seconds", "histogram", "data_type,device,implementation,kernel",
     false, kWithFirst},
    {"warpcall_kernel_flops_total", "counter", "device,implementation,kernel"},
    {"warpcall_kernel_bytes_total", "counter", "device,implementation,kernel"},
    {"warpcall_kernel_occupancy_ratio", "gauge", "device,implementation,kernel,kind", kGpuOnly,
     kWithFirst},
    {"warpcall_kernel_waves", "gauge", "device,implementation,kernel", kGpuOnly, kWithFirst},
    {"warpcall_kernel_wave_efficiency_ratio", "gauge", "device,implementation,kernel", kGpuOnly,
     kWithFirst},
    {"warpcall_auto_choices_total", "counter", "device,implementation,kernel,why", false,
     kWithFirst},
    {"warpcall_reference_served_total", "counter", "kernel"},
    {"warpcall_queue_depth", "gauge", "device"},
    {"warpcall_queue_bytes", "gauge", "device"},
    {"warpcall_queue_work_seconds", "gauge", "device"},
    {"warpcall_queue_oldest_age_seconds", "gauge", "device"},
    {"warpcall_rejected_total", "counter", "reason"},
    {"warpcall_auth_refusals_total", "counter", "reason"},
    {"warpcall_reload_failures_total", "counter", "flag"},
    {"warpcall_log_lines_dropped_total", "counter", ""},
    {"warpcall_server_phase", "gauge", "phase"},
    {"warpcall_inspections_total", "counter", "code,method"},
    {"warpcall_inspection_cpu_seconds_total", "counter", "kernel,method"},
    {"warpcall_inspection_device_seconds_total", "counter", "kernel,method"},
    {"warpcall_rows_unavailable", "gauge", "device_kind,implementation,kernel,reason,variant"},
    {"warpcall_compile_seconds", "histogram", "", false, kWithFirst},
    {"warpcall_pushes_total", "counter", "status"},
    {"warpcall_push_seconds", "histogram", "stage", false, kWithFirst},
    {"warpcall_compile_cache_hits_total", "counter", "cache"},
    {"warpcall_compile_cache_misses_total", "counter", "cache"},
    {"warpcall_compile_cache_bytes", "gauge", "cache"},
    {"warpcall_tuning_cache_errors_total", "counter", "operation"},
    {"warpcall_traced_requests_total", "counter", "result"},
    {"warpcall_staging_bytes", "gauge", "device,state"},
    {"warpcall_device_memory_bytes", "gauge", "device,state"},
    {"warpcall_device_healthy", "gauge", "device"},
    {"warpcall_worker_restarts_total", "counter", "device"},
    {"warpcall_resident_bytes", "gauge", "device,state"},
    {"warpcall_resident_tensors", "gauge", "device"},
    {"warpcall_resident_ended_total", "counter", "device,why"},
    {"warpcall_graph_replays_total", "counter", "device"},
    {"warpcall_device_busy_seconds_total", "counter", "device"},
    {"warpcall_device_bandwidth_ceiling_bytes_per_second", "gauge", "device"},
    {"warpcall_gpu_info", "gauge", "UUID,device", kGpuOnly},
    {"warpcall_device_bandwidth_ceiling_noise_ratio", "gauge", "device"},
    {"warpcall_gpu_sm_active_ratio", "gauge", "device", kGpuOnly},
    {"warpcall_gpu_sm_occupancy_ratio", "gauge", "device", kGpuOnly},
    {"warpcall_gpu_dram_bandwidth_ratio", "gauge", "device", kGpuOnly},
    {"warpcall_gpu_tensor_active_ratio", "gauge", "device", kGpuOnly},
    {"warpcall_gpu_power_watts", "gauge", "device", kGpuOnly},
    {"warpcall_gpu_temperature_celsius", "gauge", "device", kGpuOnly},
    {"warpcall_gpu_sm_clock_mhz", "gauge", "device", kGpuOnly},
    {"warpcall_gpu_throttled", "gauge", "device,reason", kGpuOnly},
    {"warpcall_gpu_xid_errors_total", "counter", "device,xid", kGpuOnly},
    {"warpcall_host_copy_bytes_total", "counter", "where"},
    {"warpcall_cuda_errors_total", "counter", "code", kGpuOnly},
    {"warpcall_build_info", "gauge", "compiler,cuda,version"},
    {"process_cpu_seconds_total", "counter", ""},
    {"process_resident_memory_bytes", "gauge", ""},
    {"process_virtual_memory_bytes", "gauge", ""},
    {"process_start_time_seconds", "gauge", ""},
    {"process_open_fds", "gauge", ""},
    {"process_max_fds", "gauge", ""},
    {"process_threads", "gauge", ""},
};

// "a,b" of `name{a="x",b="y"}`.
std::string LabelNames(absl::string_view series) {
  std::string names;
  const size_t brace = series.find('{');
  if (brace == absl::string_view::npos) return names;
  for (const absl::string_view label :
       absl::StrSplit(absl::StripSuffix(series.substr(brace + 1), "}"), ',')) {
    if (!names.empty()) names += ',';
    names.append(label.data(), label.find('='));
  }
  return names;
}

// The labels of a family's samples: of a histogram's without `le`, each of its three kinds named.
std::set<std::string> LabelsOf(const MetricsText& text, const Family& family) {
  std::set<std::string> found;
  for (const auto& sample : text.samples) {
    const absl::string_view series = sample.first;
    const absl::string_view name = series.substr(0, series.find('{'));
    absl::string_view part = name;
    if (!absl::ConsumePrefix(&part, family.name)) continue;
    const bool histogram = absl::string_view(family.type) == "histogram";
    if (part.empty() != histogram) found.insert(std::string(part) + LabelNames(series));
  }
  return found;
}

std::set<std::string> ExpectedLabels(const Family& family) {
  const std::string labels = family.labels;
  if (absl::string_view(family.type) != "histogram") return {labels};
  std::set<std::string> names = {"le"};
  for (const absl::string_view name : absl::StrSplit(labels, ',')) names.emplace(name);
  std::string with_bound;
  for (const std::string& name : names) with_bound += (with_bound.empty() ? "" : ",") + name;
  return {"_bucket" + with_bound, "_sum" + labels, "_count" + labels};
}

}  // namespace

void ExpectContract(const MetricsText& text, Seen seen) {
  std::map<std::string, std::string> types;
  for (const Family& family : kContract) {
    if (family.gpu_only && !seen.gpu) continue;
    types[family.name] = family.type;
    // Nothing is compiled at run time without a GPU, and nobody pushes.
    const bool compiles = family.name == absl::string_view("warpcall_compile_seconds");
    const bool pushes = family.name == absl::string_view("warpcall_push_seconds");
    const bool shown = !family.with_first || (seen.runs && !pushes && (seen.gpu || !compiles));
    EXPECT_EQ(LabelsOf(text, family), shown ? ExpectedLabels(family) : std::set<std::string>())
        << family.name;
  }
  EXPECT_EQ(text.types, types);
}

}  // namespace warpcall::testing
