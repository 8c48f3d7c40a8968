// Counting from start to end, with a CUPTI whose counts the test sets and which tracks everything
// that is open.
#include "server/runtime/cuda/cupti_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/server/runtime/cupti_text.h"

namespace warpcall::cupti {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

CUcontext Context(uintptr_t number) { return reinterpret_cast<CUcontext>(number); }

// The functions take no argument of ours, so there is one at a time.
struct FakeCupti {
  std::string fails;  // the name of a step, with `failure`
  CUptiResult failure = CUPTI_ERROR_UNKNOWN;
  const char* unknown_metric = "";
  std::string metric;  // the last that was added
  int open = 0;        // begun and not ended
  bool started = false;
  bool config_known = false;
  size_t dropped = 0;
  std::vector<std::string> numbers = {"0", "1"};
  CUpti_CallbackFunc callback = nullptr;
  void* callback_data = nullptr;
  std::vector<CUpti_CallbackId> callback_ids;
};
FakeCupti* fake = nullptr;

CUptiResult Step(const char* name, int opens) {
  if (*name != '\0' && fake->fails == name) return fake->failure;
  fake->open += opens;
  return CUPTI_SUCCESS;
}

void Launch(CUcontext context, const char* symbol, CUpti_CallbackId id) {
  if (std::count(fake->callback_ids.begin(), fake->callback_ids.end(), id) != 1) return;
  CUpti_CallbackData data = {};
  data.context = context;
  data.symbolName = symbol;
  for (const CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
    data.callbackSite = site;
    fake->callback(fake->callback_data, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  }
}

void SetTracing(Api* api) {
  api->GetResultString = Text;
  api->GetErrorMessage = Text;
  api->Subscribe = [](CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* data) {
    fake->callback = callback;
    fake->callback_data = data;
    *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(uintptr_t{1});
    return Step("subscribe", 1);
  };
  api->Unsubscribe = [](CUpti_SubscriberHandle) { return Step("unsubscribe", -1); };
  api->EnableCallback = [](uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain,
                           CUpti_CallbackId id) {
    fake->callback_ids.push_back(id);
    return Step("callback", 0);
  };
}

void SetHost(Api* api) {
  api->DeviceGetChipName = [](CUpti_Device_GetChipName_Params* params) {
    params->pChipName = params->deviceIndex == 3 ? "GH100" : "another";
    return Step("chip", 0);
  };
  api->ProfilerInitialize = [](CUpti_Profiler_Initialize_Params*) { return Step("libraries", 1); };
  api->ProfilerDeInitialize = [](CUpti_Profiler_DeInitialize_Params*) { return Step("", -1); };
  api->ProfilerGetCounterAvailability = [](CUpti_Profiler_GetCounterAvailability_Params* params) {
    params->counterAvailabilityImageSize = 16;
    return Step("availability", 0);
  };
  api->ProfilerHostInitialize = [](CUpti_Profiler_Host_Initialize_Params* params) {
    EXPECT_STREQ(params->pChipName, "GH100");
    params->pHostObject = reinterpret_cast<CUpti_Profiler_Host_Object*>(uintptr_t{2});
    return Step("host", 1);
  };
  api->ProfilerHostDeinitialize = [](CUpti_Profiler_Host_Deinitialize_Params*) {
    return Step("", -1);
  };
  api->ProfilerHostConfigAddMetrics = [](CUpti_Profiler_Host_ConfigAddMetrics_Params* params) {
    fake->metric = params->ppMetricNames[2];
    if (fake->metric == fake->unknown_metric) return CUPTI_ERROR_INVALID_METRIC_NAME;
    return Step("metrics", 0);
  };
  api->ProfilerHostGetConfigImageSize = [](CUpti_Profiler_Host_GetConfigImageSize_Params* params) {
    params->configImageSize = 4;
    return Step("config size", 0);
  };
  api->ProfilerHostGetConfigImage = [](CUpti_Profiler_Host_GetConfigImage_Params* params) {
    std::memcpy(params->pConfigImage, "conf", params->configImageSize);
    return Step("config", 0);
  };
  api->ProfilerHostEvaluateToGpuValues =
      [](CUpti_Profiler_Host_EvaluateToGpuValues_Params* params) {
        for (size_t i = 0; i < params->numMetrics; ++i)
          params->pMetricValues[i] = static_cast<double>(10 * (params->rangeIndex + 1) + i);
        return Step("evaluate", 0);
      };
}

void SetRanges(Api* api) {
  api->RangeProfilerEnable = [](CUpti_RangeProfiler_Enable_Params* params) {
    params->pRangeProfilerObject = reinterpret_cast<CUpti_RangeProfiler_Object*>(uintptr_t{3});
    return Step("enable", 1);
  };
  api->RangeProfilerDisable = [](CUpti_RangeProfiler_Disable_Params*) { return Step("", -1); };
  api->RangeProfilerGetCounterDataSize = [](CUpti_RangeProfiler_GetCounterDataSize_Params* params) {
    params->counterDataSize = 64;
    return Step("data size", 0);
  };
  api->RangeProfilerCounterDataImageInitialize =
      [](CUpti_RangeProfiler_CounterDataImage_Initialize_Params* params) {
        EXPECT_EQ(params->counterDataSize, 64u);
        return Step("data", 0);
      };
  api->RangeProfilerSetConfig = [](CUpti_RangeProfiler_SetConfig_Params* params) {
    fake->config_known = std::memcmp(params->pConfig, "conf", params->configSize) == 0;
    EXPECT_EQ(params->range, CUPTI_AutoRange);
    EXPECT_EQ(params->replayMode, CUPTI_KernelReplay);
    return Step("configure", 0);
  };
  api->RangeProfilerStart = [](CUpti_RangeProfiler_Start_Params*) {
    fake->started = true;
    return Step("start", 1);
  };
  api->RangeProfilerStop = [](CUpti_RangeProfiler_Stop_Params* params) {
    params->isAllPassSubmitted = 1;
    return Step("stop", -1);
  };
  api->RangeProfilerDecodeData = [](CUpti_RangeProfiler_DecodeData_Params* params) {
    params->numOfRangeDropped = fake->dropped;
    return Step("decode", 0);
  };
  api->RangeProfilerGetCounterDataInfo = [](CUpti_RangeProfiler_GetCounterDataInfo_Params* params) {
    params->numTotalRanges = fake->numbers.size();
    return Step("count", 0);
  };
  api->RangeProfilerCounterDataGetRangeInfo =
      [](CUpti_RangeProfiler_CounterData_GetRangeInfo_Params* params) {
        params->rangeName = fake->numbers[params->rangeIndex].c_str();
        return Step("number", 0);
      };
}

class CuptiCountersTest : public ::testing::Test {
 protected:
  CuptiCountersTest() {
    fake = &cupti_;
    SetTracing(&api_);
    SetHost(&api_);
    SetRanges(&api_);
  }

  absl::StatusOr<std::vector<KernelCounters>> Count() {
    return CountKernels(api_, {3, Context(7)}, [this] {
      EXPECT_TRUE(cupti_.started && cupti_.config_known);
      Launch(Context(7), "_Z1fv", CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
      Launch(Context(8), "_Z1hv", CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
      Launch(Context(7), "_Z1gv", CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx);
      return work_status_;
    });
  }

  FakeCupti cupti_;
  Api api_ = {};
  absl::Status work_status_;
};

TEST_F(CuptiCountersTest, KernelsOfTheContextAreCountedAsSharesUnderTheirNames) {
  const auto counters = Count();
  ASSERT_TRUE(counters.ok()) << counters.status();
  EXPECT_THAT(*counters, ElementsAre(AllOf(Field(&KernelCounters::name, "f()"),
                                           Field(&KernelCounters::achieved_occupancy, 0.10),
                                           Field(&KernelCounters::sm_throughput, 0.11),
                                           Field(&KernelCounters::dram_throughput, 0.12)),
                                     AllOf(Field(&KernelCounters::name, "g()"),
                                           Field(&KernelCounters::achieved_occupancy, 0.20))));
  EXPECT_EQ(cupti_.metric, "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed");
  EXPECT_EQ(cupti_.open, 0);
}

TEST_F(CuptiCountersTest, TheOtherNameOfTheMemorysMetricIsTried) {
  cupti_.unknown_metric = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";
  EXPECT_TRUE(Count().ok());
  EXPECT_EQ(cupti_.metric, "dram__throughput.avg.pct_of_peak_sustained_elapsed");
  EXPECT_EQ(cupti_.open, 0);
}

TEST_F(CuptiCountersTest, WhateverFailsAllIsUndoneAndTheReasonTold) {
  for (const char* step : {"libraries", "chip", "availability", "host", "metrics", "config size",
                           "config", "enable", "data size", "data", "configure", "subscribe",
                           "callback", "start", "decode", "count", "number", "evaluate"}) {
    cupti_ = FakeCupti();
    cupti_.fails = step;
    cupti_.failure = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    const absl::Status status = Count().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << step << ": " << status;
    EXPECT_EQ(cupti_.open, 0) << step;
  }
}

TEST_F(CuptiCountersTest, WorkThatFailsEndsCountingWithItsOwnReason) {
  work_status_ = absl::UnavailableError("the device is lost");
  EXPECT_EQ(Count().status(), work_status_);
  EXPECT_EQ(cupti_.open, 0);
}

TEST_F(CuptiCountersTest, MoreKernelsThanItTakesNameTheLimit) {
  cupti_.dropped = 6;
  const absl::Status status = Count().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "counting takes 1024 kernels at most; there were 1030");
}

TEST_F(CuptiCountersTest, RangesThatDoNotFitTheLaunchesAreNotNamed) {
  cupti_.numbers = {"0", "1", "2"};
  EXPECT_THAT(std::string(Count().status().message()),
              HasSubstr("counted 3 kernels, but 2 were launched (f(), g())"));
}

}  // namespace
}  // namespace warpcall::cupti
