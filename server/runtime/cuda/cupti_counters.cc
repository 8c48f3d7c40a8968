#include "server/runtime/cuda/cupti_counters.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/runtime/cuda/cupti_launches.h"
#include "server/runtime/cuda/cupti_records.h"

namespace warpcall::cupti {
namespace {

// Names of metrics in percent, in the order of KernelCounters. The memory's has had two names.
using Metrics = std::array<const char*, 3>;
constexpr char kOccupancy[] = "sm__warps_active.avg.pct_of_peak_sustained_active";
constexpr char kSmThroughput[] = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
constexpr Metrics kMetricsByName[] = {
    {kOccupancy, kSmThroughput, "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"},
    {kOccupancy, kSmThroughput, "dram__throughput.avg.pct_of_peak_sustained_elapsed"},
};

using Image = std::vector<uint8_t>;

// The profiler's libraries, from loading to unloading.
class Libraries {
 public:
  explicit Libraries(const Api& api) : api_(api) {
    auto params =
        Make<CUpti_Profiler_Initialize_Params>(CUpti_Profiler_Initialize_Params_STRUCT_SIZE);
    status_ = api_.ToStatus(api_.ProfilerInitialize(&params),
                            "starting CUPTI's profiler (which needs libnvperf_host.so and "
                            "libnvperf_target.so beside it)");
  }
  ~Libraries() {
    auto params =
        Make<CUpti_Profiler_DeInitialize_Params>(CUpti_Profiler_DeInitialize_Params_STRUCT_SIZE);
    if (status_.ok()) api_.ProfilerDeInitialize(&params);
  }
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  const Api& api_;
  absl::Status status_;
};

absl::StatusOr<std::string> ChipName(const Api& api, int device) {
  auto params = Make<CUpti_Device_GetChipName_Params>(CUpti_Device_GetChipName_Params_STRUCT_SIZE);
  params.deviceIndex = static_cast<size_t>(device);
  RETURN_IF_ERROR(api.ToStatus(api.DeviceGetChipName(&params), "asking CUPTI for the GPU's chip"));
  return std::string(params.pChipName);
}

// Returns the counters that this process may use.
absl::StatusOr<Image> CounterAvailability(const Api& api, CUcontext context) {
  constexpr char kWhat[] = "asking CUPTI which counters there are";
  auto params = Make<CUpti_Profiler_GetCounterAvailability_Params>(
      CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE);
  params.ctx = context;
  RETURN_IF_ERROR(api.ToStatus(api.ProfilerGetCounterAvailability(&params), kWhat));
  Image image(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image.data();
  RETURN_IF_ERROR(api.ToStatus(api.ProfilerGetCounterAvailability(&params), kWhat));
  return image;
}

// Knows metrics: which raw counters make them, and what the counters' values say.
class Host {
 public:
  explicit Host(const Api& api) : api_(api) {}
  ~Host() {
    auto params = Make<CUpti_Profiler_Host_Deinitialize_Params>(
        CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE);
    params.pHostObject = host_;
    if (host_ != nullptr) api_.ProfilerHostDeinitialize(&params);
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  absl::Status Initialize(const std::string& chip, const Image& availability) {
    auto params = Make<CUpti_Profiler_Host_Initialize_Params>(
        CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE);
    params.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    params.pChipName = chip.c_str();
    params.pCounterAvailabilityImage = availability.data();
    RETURN_IF_ERROR(api_.ToStatus(api_.ProfilerHostInitialize(&params),
                                  absl::StrCat("setting up CUPTI's metrics for chip ", chip)));
    host_ = params.pHostObject;
    return absl::OkStatus();
  }

  CUptiResult AddMetrics(Metrics metrics) {
    auto params = Make<CUpti_Profiler_Host_ConfigAddMetrics_Params>(
        CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE);
    params.pHostObject = host_;
    params.ppMetricNames = metrics.data();
    params.numMetrics = metrics.size();
    return api_.ProfilerHostConfigAddMetrics(&params);
  }

  // Returns the configuration that collects the added metrics.
  absl::StatusOr<Image> Config() {
    auto size = Make<CUpti_Profiler_Host_GetConfigImageSize_Params>(
        CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE);
    size.pHostObject = host_;
    RETURN_IF_ERROR(api_.ToStatus(api_.ProfilerHostGetConfigImageSize(&size),
                                  "asking CUPTI for the size of its configuration"));
    Image image(size.configImageSize);
    auto params = Make<CUpti_Profiler_Host_GetConfigImage_Params>(
        CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE);
    params.pHostObject = host_;
    params.configImageSize = image.size();
    params.pConfigImage = image.data();
    RETURN_IF_ERROR(api_.ToStatus(api_.ProfilerHostGetConfigImage(&params),
                                  "asking CUPTI for its configuration"));
    return image;
  }

  absl::StatusOr<KernelCounters> Evaluate(const Image& data, size_t range, Metrics metrics) {
    std::array<double, std::tuple_size_v<Metrics>> percent = {};
    auto params = Make<CUpti_Profiler_Host_EvaluateToGpuValues_Params>(
        CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE);
    params.pHostObject = host_;
    params.pCounterDataImage = data.data();
    params.counterDataImageSize = data.size();
    params.rangeIndex = range;
    params.ppMetricNames = metrics.data();
    params.numMetrics = metrics.size();
    params.pMetricValues = percent.data();
    RETURN_IF_ERROR(api_.ToStatus(api_.ProfilerHostEvaluateToGpuValues(&params),
                                  absl::StrCat("evaluating kernel ", range)));
    KernelCounters counters;
    counters.achieved_occupancy = percent[0] / 100;
    counters.sm_throughput = percent[1] / 100;
    counters.dram_throughput = percent[2] / 100;
    return counters;
  }

 private:
  const Api& api_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
};

// Collects, in one context.
class Ranges {
 public:
  explicit Ranges(const Api& api) : api_(api) {}
  ~Ranges() {
    auto params =
        Make<CUpti_RangeProfiler_Disable_Params>(CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE);
    params.pRangeProfilerObject = object_;
    if (object_ != nullptr) api_.RangeProfilerDisable(&params);
  }
  Ranges(const Ranges&) = delete;
  Ranges& operator=(const Ranges&) = delete;

  absl::Status Enable(CUcontext context) {
    auto params =
        Make<CUpti_RangeProfiler_Enable_Params>(CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE);
    params.ctx = context;
    RETURN_IF_ERROR(api_.ToStatus(api_.RangeProfilerEnable(&params), "enabling CUPTI's counters"));
    object_ = params.pRangeProfilerObject;
    return absl::OkStatus();
  }

  // Lays out the memory that results go to, and says what to collect.
  absl::Status Configure(const Image& config, Metrics metrics) {
    auto size = Make<CUpti_RangeProfiler_GetCounterDataSize_Params>(
        CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE);
    size.pRangeProfilerObject = object_;
    size.pMetricNames = metrics.data();
    size.numMetrics = metrics.size();
    size.maxNumOfRanges = kCountedKernelsMax;
    size.maxNumRangeTreeNodes = kCountedKernelsMax;
    RETURN_IF_ERROR(api_.ToStatus(api_.RangeProfilerGetCounterDataSize(&size),
                                  "asking CUPTI for the size of its results"));
    data_.resize(size.counterDataSize);
    auto image = Make<CUpti_RangeProfiler_CounterDataImage_Initialize_Params>(
        CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE);
    image.pRangeProfilerObject = object_;
    image.counterDataSize = data_.size();
    image.pCounterData = data_.data();
    RETURN_IF_ERROR(api_.ToStatus(api_.RangeProfilerCounterDataImageInitialize(&image),
                                  "preparing CUPTI's results"));
    auto params = Make<CUpti_RangeProfiler_SetConfig_Params>(
        CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE);
    params.pRangeProfilerObject = object_;
    params.configSize = config.size();
    params.pConfig = config.data();
    params.counterDataImageSize = data_.size();
    params.pCounterDataImage = data_.data();
    params.range = CUPTI_AutoRange;
    params.replayMode = CUPTI_KernelReplay;
    params.maxRangesPerPass = kCountedKernelsMax;
    params.numNestingLevels = 1;
    params.minNestingLevel = 1;
    params.passIndex = 0;
    params.targetNestingLevel = 1;
    return api_.ToStatus(api_.RangeProfilerSetConfig(&params), "configuring CUPTI's counters");
  }

  // Kernel replay: one call of `work` is all passes.
  absl::Status Run(absl::FunctionRef<absl::Status()> work) {
    auto start =
        Make<CUpti_RangeProfiler_Start_Params>(CUpti_RangeProfiler_Start_Params_STRUCT_SIZE);
    start.pRangeProfilerObject = object_;
    RETURN_IF_ERROR(api_.ToStatus(api_.RangeProfilerStart(&start), "starting CUPTI's counters"));
    absl::Status status = work();
    auto stop = Make<CUpti_RangeProfiler_Stop_Params>(CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE);
    stop.pRangeProfilerObject = object_;
    status.Update(api_.ToStatus(api_.RangeProfilerStop(&stop), "stopping CUPTI's counters"));
    RETURN_IF_ERROR(status);
    if (stop.isAllPassSubmitted == 0)
      return absl::InternalError("CUPTI wants the kernels run again, although it replays them");
    return Decode();
  }

  absl::StatusOr<size_t> Count() {
    auto params = Make<CUpti_RangeProfiler_GetCounterDataInfo_Params>(
        CUpti_RangeProfiler_GetCounterDataInfo_Params_STRUCT_SIZE);
    params.pCounterDataImage = data_.data();
    params.counterDataImageSize = data_.size();
    RETURN_IF_ERROR(api_.ToStatus(api_.RangeProfilerGetCounterDataInfo(&params),
                                  "asking CUPTI how many kernels it counted"));
    return params.numTotalRanges;
  }

  absl::StatusOr<std::string> NumberOf(size_t range) {
    auto params = Make<CUpti_RangeProfiler_CounterData_GetRangeInfo_Params>(
        CUpti_RangeProfiler_CounterData_GetRangeInfo_Params_STRUCT_SIZE);
    params.pCounterDataImage = data_.data();
    params.counterDataImageSize = data_.size();
    params.rangeIndex = range;
    params.rangeDelimiter = "/";
    RETURN_IF_ERROR(api_.ToStatus(api_.RangeProfilerCounterDataGetRangeInfo(&params),
                                  absl::StrCat("asking CUPTI for the name of kernel ", range)));
    return std::string(params.rangeName == nullptr ? "" : params.rangeName);
  }

  const Image& data() const { return data_; }

 private:
  absl::Status Decode() {
    auto params = Make<CUpti_RangeProfiler_DecodeData_Params>(
        CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE);
    params.pRangeProfilerObject = object_;
    RETURN_IF_ERROR(
        api_.ToStatus(api_.RangeProfilerDecodeData(&params), "decoding CUPTI's counters"));
    if (params.numOfRangeDropped == 0) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("counting takes ", kCountedKernelsMax, " kernels at most; there were ",
                     kCountedKernelsMax + params.numOfRangeDropped));
  }

  const Api& api_;
  CUpti_RangeProfiler_Object* object_ = nullptr;
  Image data_;
};

}  // namespace

absl::StatusOr<std::vector<KernelCounters>> CountKernels(const Api& api,
                                                         const CountedContext& counted,
                                                         absl::FunctionRef<absl::Status()> work) {
  WARPCALL_DCHECK(counted.device >= 0 && counted.context != nullptr, counted.device);
  const Libraries libraries(api);
  RETURN_IF_ERROR(libraries.status());
  ASSIGN_OR_RETURN(const std::string chip, ChipName(api, counted.device));
  ASSIGN_OR_RETURN(const Image availability, CounterAvailability(api, counted.context));
  std::unique_ptr<Host> host;
  Metrics metrics = {};
  CUptiResult added = CUPTI_ERROR_INVALID_METRIC_NAME;
  for (size_t i = 0; added == CUPTI_ERROR_INVALID_METRIC_NAME && i < std::size(kMetricsByName);
       ++i) {
    metrics = kMetricsByName[i];
    host = std::make_unique<Host>(api);
    RETURN_IF_ERROR(host->Initialize(chip, availability));
    added = host->AddMetrics(metrics);
  }
  RETURN_IF_ERROR(api.ToStatus(added, absl::StrCat("asking CUPTI for metrics of chip ", chip)));
  ASSIGN_OR_RETURN(const Image config, host->Config());
  Ranges ranges(api);
  RETURN_IF_ERROR(ranges.Enable(counted.context));
  RETURN_IF_ERROR(ranges.Configure(config, metrics));
  std::vector<std::string> launches;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<LaunchLog> log, LaunchLog::Create(api, counted.context));
    RETURN_IF_ERROR(ranges.Run(work));
    launches = log->Names();
  }
  std::vector<CountedRange> results;
  ASSIGN_OR_RETURN(const size_t count, ranges.Count());
  for (size_t i = 0; i < count; ++i) {
    CountedRange result;
    ASSIGN_OR_RETURN(result.number, ranges.NumberOf(i));
    ASSIGN_OR_RETURN(result.counters, host->Evaluate(ranges.data(), i, metrics));
    results.push_back(std::move(result));
  }
  return NameRanges(std::move(results), launches);
}

}  // namespace warpcall::cupti
