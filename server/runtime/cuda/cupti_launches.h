// The names of kernels as they are launched, by CUPTI's callbacks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/runtime/cuda/cupti_api.h"

namespace warpcall::cupti {

// Logs every launch into a context, by any thread, from its creation to its end. UNAVAILABLE if the
// process has another log, or another tool is attached.
class LaunchLog {
 public:
  static absl::StatusOr<std::unique_ptr<LaunchLog>> Create(const Api& api, CUcontext context);
  ~LaunchLog();
  LaunchLog(const LaunchLog&) = delete;
  LaunchLog& operator=(const LaunchLog&) = delete;

  // Kernels' names in order of launch, demangled; a graph is one launch, named "graph".
  std::vector<std::string> Names() const;

 private:
  LaunchLog(const Api& api, CUcontext context) : api_(api), context_(context) {}
  absl::Status Subscribe();
  static void CUPTIAPI OnLaunch(void* log, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                const void* data);

  const Api& api_;
  const CUcontext context_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  mutable absl::Mutex mutex_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall::cupti
