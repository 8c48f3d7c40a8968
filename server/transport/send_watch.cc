#include "server/transport/send_watch.h"

#include <grpc/grpc.h>

#include <utility>

#include "proto/common/check.h"

namespace warpcall {

void SendWatch::Sending::Begin(size_t bytes) {
  if (watch_ == nullptr) return;
  absl::MutexLock lock(&watch_->mutex_);
  WARPCALL_DCHECK(!begun_ || context_->IsCancelled(), bytes);
  allowed_ns_ = watch_->AllowedNs(bytes);
  since_ns_ = 0;
  begun_ = true;
  watch_->sendings_.insert(this);
}

void SendWatch::Sending::End() {
  if (watch_ == nullptr) return;
  absl::MutexLock lock(&watch_->mutex_);
  if (std::exchange(begun_, false)) watch_->sendings_.erase(this);
}

int64_t SendWatch::AllowedNs(size_t bytes) const {
  const double periods = 1 + static_cast<double>(bytes) / static_cast<double>(kBytesPerPeriod);
  return static_cast<int64_t>(static_cast<double>(period_ns_) * periods);
}

std::vector<std::string> SendWatch::Check(int64_t now_ns) {
  std::vector<std::string> peers;
  std::vector<grpc_call*> unread;
  {
    absl::MutexLock lock(&mutex_);
    for (auto next = sendings_.begin(); next != sendings_.end();) {
      const auto at = next++;
      Sending& sending = **at;
      WARPCALL_DCHECK(sending.begun_ && sending.watch_ == this);
      if (sending.since_ns_ == 0) sending.since_ns_ = now_ns;
      if (now_ns - sending.since_ns_ < sending.allowed_ns_) continue;
      peers.push_back(sending.context_->peer());
      unread.push_back(sending.context_->c_call());
      grpc_call_ref(unread.back());
      sending.begun_ = false;
      sendings_.erase(at);
    }
  }
  // Without the mutex: gRPC may end a call on this thread, which destroys its Sending.
  for (grpc_call* const call : unread) {
    grpc_call_cancel(call, nullptr);
    grpc_call_unref(call);
  }
  return peers;
}

}  // namespace warpcall
