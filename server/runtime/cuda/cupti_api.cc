#include "server/runtime/cuda/cupti_api.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cuda/shared_library.h"
#include "proto/common/status_macros.h"

namespace warpcall::cupti {
namespace {

constexpr char kFile[] = "libcupti.so.13";
static_assert(CUPTI_API_VERSION / 10000 == 13, "the file's number and the header's must be alike");

// Toolkits' and PyPI's, whose folders the loader does not know by itself.
constexpr const char* kFolders[] = {
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/extras/CUPTI/lib64",
    "/usr/local/cuda-13*/lib64",
    "/usr/local/cuda-13*/extras/CUPTI/lib64",
    "/usr/local/lib/python3*/dist-packages/nvidia/cu13/lib",
    "/usr/local/lib/python3*/site-packages/nvidia/cu13/lib",
    "/usr/lib/python3*/dist-packages/nvidia/cu13/lib",
    "/usr/lib/python3*/site-packages/nvidia/cu13/lib",
};
constexpr char kVirtualEnvironmentFolder[] = "lib/python3*/site-packages/nvidia/cu13/lib";

void AddExisting(const std::string& pattern, std::vector<std::string>* files) {
  glob_t found = {};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    files->insert(files->end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
}

// Opens CUPTI's neighbours, which CUPTI itself opens by name alone when it counts. They must be
// loaded already if the loader does not search CUPTI's folder.
void OpenNeighbours(const std::string& file) {
  const size_t slash = file.rfind('/');
  if (slash == std::string::npos) return;
  for (const char* neighbour : {"libnvperf_host.so", "libnvperf_target.so"})
    dlopen(absl::StrCat(file.substr(0, slash + 1), neighbour).c_str(), RTLD_NOW | RTLD_LOCAL);
}

absl::Status ResolveTracing(const cuda::SharedLibrary& library, Api* api) {
  RETURN_IF_ERROR(library.Resolve("cuptiGetResultString", &api->GetResultString));
  RETURN_IF_ERROR(library.Resolve("cuptiGetErrorMessage", &api->GetErrorMessage));
  RETURN_IF_ERROR(library.Resolve("cuptiGetTimestamp", &api->GetTimestamp));
  RETURN_IF_ERROR(library.Resolve("cuptiActivityRegisterTimestampCallback",
                                  &api->ActivityRegisterTimestampCallback));
  RETURN_IF_ERROR(
      library.Resolve("cuptiActivityRegisterCallbacks", &api->ActivityRegisterCallbacks));
  RETURN_IF_ERROR(library.Resolve("cuptiActivityEnable", &api->ActivityEnable));
  RETURN_IF_ERROR(library.Resolve("cuptiActivityDisable", &api->ActivityDisable));
  RETURN_IF_ERROR(library.Resolve("cuptiActivityFlushAll", &api->ActivityFlushAll));
  RETURN_IF_ERROR(library.Resolve("cuptiActivityGetNextRecord", &api->ActivityGetNextRecord));
  RETURN_IF_ERROR(
      library.Resolve("cuptiActivityGetNumDroppedRecords", &api->ActivityGetNumDroppedRecords));
  RETURN_IF_ERROR(library.Resolve("cuptiSubscribe", &api->Subscribe));
  RETURN_IF_ERROR(library.Resolve("cuptiUnsubscribe", &api->Unsubscribe));
  return library.Resolve("cuptiEnableCallback", &api->EnableCallback);
}

absl::Status ResolveHost(const cuda::SharedLibrary& library, Api* api) {
  RETURN_IF_ERROR(library.Resolve("cuptiDeviceGetChipName", &api->DeviceGetChipName));
  RETURN_IF_ERROR(library.Resolve("cuptiProfilerInitialize", &api->ProfilerInitialize));
  RETURN_IF_ERROR(library.Resolve("cuptiProfilerDeInitialize", &api->ProfilerDeInitialize));
  RETURN_IF_ERROR(
      library.Resolve("cuptiProfilerGetCounterAvailability", &api->ProfilerGetCounterAvailability));
  RETURN_IF_ERROR(library.Resolve("cuptiProfilerHostInitialize", &api->ProfilerHostInitialize));
  RETURN_IF_ERROR(library.Resolve("cuptiProfilerHostDeinitialize", &api->ProfilerHostDeinitialize));
  RETURN_IF_ERROR(
      library.Resolve("cuptiProfilerHostConfigAddMetrics", &api->ProfilerHostConfigAddMetrics));
  RETURN_IF_ERROR(
      library.Resolve("cuptiProfilerHostGetConfigImageSize", &api->ProfilerHostGetConfigImageSize));
  RETURN_IF_ERROR(
      library.Resolve("cuptiProfilerHostGetConfigImage", &api->ProfilerHostGetConfigImage));
  return library.Resolve("cuptiProfilerHostEvaluateToGpuValues",
                         &api->ProfilerHostEvaluateToGpuValues);
}

absl::Status ResolveRanges(const cuda::SharedLibrary& library, Api* api) {
  RETURN_IF_ERROR(library.Resolve("cuptiRangeProfilerEnable", &api->RangeProfilerEnable));
  RETURN_IF_ERROR(library.Resolve("cuptiRangeProfilerDisable", &api->RangeProfilerDisable));
  RETURN_IF_ERROR(library.Resolve("cuptiRangeProfilerSetConfig", &api->RangeProfilerSetConfig));
  RETURN_IF_ERROR(library.Resolve("cuptiRangeProfilerStart", &api->RangeProfilerStart));
  RETURN_IF_ERROR(library.Resolve("cuptiRangeProfilerStop", &api->RangeProfilerStop));
  RETURN_IF_ERROR(library.Resolve("cuptiRangeProfilerDecodeData", &api->RangeProfilerDecodeData));
  RETURN_IF_ERROR(library.Resolve("cuptiRangeProfilerGetCounterDataSize",
                                  &api->RangeProfilerGetCounterDataSize));
  RETURN_IF_ERROR(library.Resolve("cuptiRangeProfilerCounterDataImageInitialize",
                                  &api->RangeProfilerCounterDataImageInitialize));
  RETURN_IF_ERROR(library.Resolve("cuptiRangeProfilerGetCounterDataInfo",
                                  &api->RangeProfilerGetCounterDataInfo));
  return library.Resolve("cuptiRangeProfilerCounterDataGetRangeInfo",
                         &api->RangeProfilerCounterDataGetRangeInfo);
}

absl::StatusOr<Api> OpenFirst() {
  std::vector<std::string> reasons;
  for (const std::string& file : Candidates()) {
    OpenNeighbours(file);
    absl::StatusOr<Api> api = Open(file.c_str());
    if (api.ok()) return api;
    reasons.emplace_back(api.status().message());
  }
  return absl::UnavailableError(absl::StrJoin(reasons, "; "));
}

absl::StatusCode CodeOf(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return absl::StatusCode::kPermissionDenied;
    case CUPTI_ERROR_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    case CUPTI_ERROR_INVALID_PARAMETER:
    case CUPTI_ERROR_INVALID_KIND:
    case CUPTI_ERROR_INVALID_METRIC_NAME:
    case CUPTI_ERROR_INVALID_OPERATION:
    case CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT:
      return absl::StatusCode::kInternal;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

absl::Status Api::ToStatus(CUptiResult result, absl::string_view what) const {
  if (result == CUPTI_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  const char* meaning = nullptr;  // newer errors have none but their name
  if (GetResultString(result, &name) != CUPTI_SUCCESS || name == nullptr) name = "unknown";
  if (GetErrorMessage(result, &meaning) != CUPTI_SUCCESS || meaning == nullptr ||
      absl::string_view(meaning) == name)
    meaning = "";
  const absl::StatusCode code = CodeOf(result);
  const char* const remedy =
      code == absl::StatusCode::kPermissionDenied
          ? "; reading a GPU's counters takes CAP_SYS_ADMIN, or the nvidia module's option "
            "NVreg_RestrictProfilingToAdminUsers=0"
          : "";
  return absl::Status(code, absl::StrCat(what, ": ", name, " (", static_cast<int>(result), ")",
                                         *meaning == '\0' ? "" : ": ", meaning, remedy));
}

absl::StatusOr<Api> Open(const char* file) {
  ASSIGN_OR_RETURN(const cuda::SharedLibrary library,
                   cuda::SharedLibrary::Open(file, "profiling needs it"));
  Api api = {};
  RETURN_IF_ERROR(ResolveTracing(library, &api));
  RETURN_IF_ERROR(ResolveHost(library, &api));
  RETURN_IF_ERROR(ResolveRanges(library, &api));
  return api;
}

std::vector<std::string> Candidates() {
  std::vector<std::string> files = {kFile};
  for (const char* folder : kFolders) AddExisting(absl::StrCat(folder, "/", kFile), &files);
  if (const char* const environment = std::getenv("VIRTUAL_ENV"))
    AddExisting(absl::StrCat(environment, "/", kVirtualEnvironmentFolder, "/", kFile), &files);
  return files;
}

absl::StatusOr<const Api*> Load() {
  static const absl::StatusOr<Api>& api = *new absl::StatusOr<Api>(OpenFirst());
  if (!api.ok()) return api.status();
  return &*api;
}

}  // namespace warpcall::cupti
