// CUPTI 13, loaded at run time.
#pragma once

#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::cupti {

// NVIDIA's functions under their own names, less the prefix.
struct Api {
  // NOLINTBEGIN(readability-identifier-naming)
  decltype(&cuptiGetResultString) GetResultString;
  decltype(&cuptiGetErrorMessage) GetErrorMessage;
  decltype(&cuptiGetTimestamp) GetTimestamp;

  decltype(&cuptiActivityRegisterTimestampCallback) ActivityRegisterTimestampCallback;
  decltype(&cuptiActivityRegisterCallbacks) ActivityRegisterCallbacks;
  decltype(&cuptiActivityEnable) ActivityEnable;
  decltype(&cuptiActivityDisable) ActivityDisable;
  decltype(&cuptiActivityFlushAll) ActivityFlushAll;
  decltype(&cuptiActivityGetNextRecord) ActivityGetNextRecord;
  decltype(&cuptiActivityGetNumDroppedRecords) ActivityGetNumDroppedRecords;

  decltype(&cuptiSubscribe) Subscribe;
  decltype(&cuptiUnsubscribe) Unsubscribe;
  decltype(&cuptiEnableCallback) EnableCallback;

  decltype(&cuptiDeviceGetChipName) DeviceGetChipName;
  decltype(&cuptiProfilerInitialize) ProfilerInitialize;
  decltype(&cuptiProfilerDeInitialize) ProfilerDeInitialize;
  decltype(&cuptiProfilerGetCounterAvailability) ProfilerGetCounterAvailability;
  decltype(&cuptiProfilerHostInitialize) ProfilerHostInitialize;
  decltype(&cuptiProfilerHostDeinitialize) ProfilerHostDeinitialize;
  decltype(&cuptiProfilerHostConfigAddMetrics) ProfilerHostConfigAddMetrics;
  decltype(&cuptiProfilerHostGetConfigImageSize) ProfilerHostGetConfigImageSize;
  decltype(&cuptiProfilerHostGetConfigImage) ProfilerHostGetConfigImage;
  decltype(&cuptiProfilerHostEvaluateToGpuValues) ProfilerHostEvaluateToGpuValues;
  decltype(&cuptiRangeProfilerEnable) RangeProfilerEnable;
  decltype(&cuptiRangeProfilerDisable) RangeProfilerDisable;
  decltype(&cuptiRangeProfilerSetConfig) RangeProfilerSetConfig;
  decltype(&cuptiRangeProfilerStart) RangeProfilerStart;
  decltype(&cuptiRangeProfilerStop) RangeProfilerStop;
  decltype(&cuptiRangeProfilerDecodeData) RangeProfilerDecodeData;
  decltype(&cuptiRangeProfilerGetCounterDataSize) RangeProfilerGetCounterDataSize;
  decltype(&cuptiRangeProfilerCounterDataImageInitialize) RangeProfilerCounterDataImageInitialize;
  decltype(&cuptiRangeProfilerGetCounterDataInfo) RangeProfilerGetCounterDataInfo;
  decltype(&cuptiRangeProfilerCounterDataGetRangeInfo) RangeProfilerCounterDataGetRangeInfo;
  // NOLINTEND(readability-identifier-naming)

  // OK for CUPTI_SUCCESS. PERMISSION_DENIED says what gives the permission, RESOURCE_EXHAUSTED is
  // for memory, INTERNAL for calls that were wrong, UNAVAILABLE for what lies outside this process:
  // another profiler, a missing library, an unsupported device. The message says what was attempted
  // (`what`), CUPTI's name of the error and its meaning.
  absl::Status ToStatus(CUptiResult result, absl::string_view what) const;
};

// A parameter block of CUPTI's with its size filled in and all else zero.
template <typename Params>
Params Make(size_t struct_size) {
  Params params{};
  params.structSize = struct_size;
  return params;
}

// Opens `file` and resolves every function. UNIMPLEMENTED says what is missing and why.
absl::StatusOr<Api> Open(const char* file);

// Returns the places to search for the library: by its name as dlopen does, then the existing ones
// of the toolkit's and PyPI's usual folders.
std::vector<std::string> Candidates();

// The first candidate that opens, once per process. Thread-safe. UNAVAILABLE gives the reason of
// each.
absl::StatusOr<const Api*> Load();

}  // namespace warpcall::cupti
