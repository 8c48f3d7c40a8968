#include "server/transport/open_streams.h"

#include <vector>

#include "server/transport/execute_stream_call.h"

namespace warpcall {

void OpenStreams::Add(ExecuteStreamCall* call) {
  absl::MutexLock lock(&mutex_);
  calls_.insert(call);
}

void OpenStreams::Remove(ExecuteStreamCall* call) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(call);
}

int64_t OpenStreams::EndAll(const absl::Status& status) {
  std::vector<ExecuteStreamCall*> held;
  {
    absl::MutexLock lock(&mutex_);
    for (ExecuteStreamCall* call : calls_) {
      call->Hold();
      held.push_back(call);
    }
  }
  // Not under the mutex: a call that ends here removes itself.
  for (ExecuteStreamCall* call : held) call->EndAndRelease(status);
  return static_cast<int64_t>(held.size());
}

}  // namespace warpcall
