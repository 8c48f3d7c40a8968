#include "server/runtime/cuda/cupti_launches.h"

#include "proto/common/status_macros.h"
#include "server/runtime/cuda/cupti_records.h"

namespace warpcall::cupti {
namespace {

// All calls of the driver that launch kernels; the runtime's calls end in these.
constexpr CUpti_CallbackId kLaunches[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
};

bool IsGraph(CUpti_CallbackId id) {
  return id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch ||
         id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LaunchLog>> LaunchLog::Create(const Api& api, CUcontext context) {
  std::unique_ptr<LaunchLog> log(new LaunchLog(api, context));
  RETURN_IF_ERROR(log->Subscribe());
  return log;
}

absl::Status LaunchLog::Subscribe() {
  const CUptiResult result = api_.Subscribe(&subscriber_, OnLaunch, this);
  if (result != CUPTI_SUCCESS) subscriber_ = nullptr;
  RETURN_IF_ERROR(api_.ToStatus(result, "asking CUPTI for callbacks"));
  for (const CUpti_CallbackId id : kLaunches)
    RETURN_IF_ERROR(
        api_.ToStatus(api_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, id),
                      "asking CUPTI for callbacks of launches"));
  return absl::OkStatus();
}

LaunchLog::~LaunchLog() {
  if (subscriber_ != nullptr) api_.Unsubscribe(subscriber_);
}

std::vector<std::string> LaunchLog::Names() const {
  absl::MutexLock lock(&mutex_);
  return names_;
}

void CUPTIAPI LaunchLog::OnLaunch(void* log, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                  const void* data) {
  auto* const self = static_cast<LaunchLog*>(log);
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
  const auto& launch = *static_cast<const CUpti_CallbackData*>(data);
  if (launch.callbackSite != CUPTI_API_ENTER || launch.context != self->context_) return;
  std::string name = IsGraph(id) ? "graph" : Demangle(launch.symbolName);
  absl::MutexLock lock(&self->mutex_);
  self->names_.push_back(std::move(name));
}

}  // namespace warpcall::cupti
