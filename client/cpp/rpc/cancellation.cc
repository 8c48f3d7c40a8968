// Cancellation of warpcall/call.h.
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "warpcall/call.h"

namespace warpcall::client {
namespace {

// Too short for a person pressing Ctrl-C to notice, and cheap for a waiting thread.
constexpr absl::Duration kPollInterval = absl::Milliseconds(50);

}  // namespace

Cancellation::Cancellation(Cancellation* parent, std::function<bool()> wanted)
    : parent_(parent), wanted_(std::move(wanted)) {
  if (parent_ == nullptr) return;
  absl::MutexLock lock(&parent_->mutex_);
  parent_->children_.push_back(this);
  if (parent_->cancelled_) Cancel();
}

Cancellation::~Cancellation() {
  if (parent_ == nullptr) return;
  absl::MutexLock lock(&parent_->mutex_);
  std::vector<Cancellation*>& siblings = parent_->children_;
  siblings.erase(std::remove(siblings.begin(), siblings.end(), this), siblings.end());
}

void Cancellation::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* call : calls_) call->TryCancel();
  for (Cancellation* child : children_) child->Cancel();
}

void Cancellation::WaitFor(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (true) {
    const absl::Time until = HasWanted() ? std::min(end, absl::Now() + kPollInterval) : end;
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithDeadline(absl::Condition(&cancelled_), until)) return;
    }
    if (until == end) return;
    if (!IsWanted()) Cancel();
  }
}

bool Cancellation::Await(Cancellation* cancellation, absl::Mutex* mutex,
                         const absl::Condition& condition, absl::Time deadline) {
  if (cancellation == nullptr) return mutex->AwaitWithDeadline(condition, deadline);
  while (true) {
    const absl::Time until = std::min(deadline, absl::Now() + kPollInterval);
    if (mutex->AwaitWithDeadline(condition, until)) return true;
    if (until == deadline || cancellation->IsCancelled()) return false;
  }
}

void Cancellation::Add(grpc::ClientContext* call) {
  absl::MutexLock lock(&mutex_);
  calls_.push_back(call);
  if (cancelled_) call->TryCancel();
}

void Cancellation::Remove(grpc::ClientContext* call) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(std::remove(calls_.begin(), calls_.end(), call), calls_.end());
}

bool Cancellation::Next(grpc::CompletionQueue* queue, void** tag, bool* ok) {
  if (!HasWanted()) return queue->Next(tag, ok);
  while (true) {
    const absl::Time until = absl::Now() + kPollInterval;
    const auto next = queue->AsyncNext(tag, ok, absl::ToChronoTime(until));
    if (next != grpc::CompletionQueue::TIMEOUT) return next == grpc::CompletionQueue::GOT_EVENT;
    if (!IsWanted()) Cancel();
  }
}

bool Cancellation::IsCancelled() {
  if (!IsWanted()) Cancel();
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

bool Cancellation::IsWanted() const {
  if (wanted_ != nullptr && !wanted_()) return false;
  return parent_ == nullptr || parent_->IsWanted();
}

}  // namespace warpcall::client
