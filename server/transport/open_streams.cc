#include "server/transport/open_streams.h"

#include <vector>

#include "proto/common/check.h"

namespace warpcall {

void OpenStreams::Add(OpenStream* call) {
  absl::MutexLock lock(&mutex_);
  const bool is_new = calls_.insert(call).second;
  WARPCALL_DCHECK(is_new, call);
}

void OpenStreams::Remove(OpenStream* call) {
  absl::MutexLock lock(&mutex_);
  const size_t erased = calls_.erase(call);
  WARPCALL_DCHECK(erased == 1, call);
}

int64_t OpenStreams::EndAll(const absl::Status& status) {
  std::vector<OpenStream*> held;
  {
    absl::MutexLock lock(&mutex_);
    for (OpenStream* call : calls_) {
      call->Hold();
      held.push_back(call);
    }
  }
  // Not under the mutex: a call that ends here removes itself.
  for (OpenStream* call : held) call->EndAndRelease(status);
  return static_cast<int64_t>(held.size());
}

}  // namespace warpcall
