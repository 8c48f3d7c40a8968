#include "client/cpp/calls/kernel_cache.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "client/cpp/codec/codec.h"
#include "client/cpp/rpc/methods.h"

namespace warpcall::client {
namespace {

// A call that does not know the kernels is only slower, so it does not wait long for them: nor for
// more than half of its own time, or try again.
constexpr absl::Duration kAskingMax = absl::Seconds(10);

absl::StatusOr<std::vector<KernelInfo>> ListKernels(const Channel& channel,
                                                    const CallTerms& terms) {
  const Reply reply = channel.Unary(kListKernels, {}, terms);
  if (!reply.status.ok()) return reply.status;
  return DecodeKernels(reply.fragments);
}

}  // namespace

const KernelInfo* KernelCache::Find(absl::string_view name, const CallTerms& call) {
  const absl::Time now = absl::Now();
  const CallTerms terms = {now + std::min(kAskingMax, (call.deadline - now) / 2),
                           call.cancellation};
  {
    absl::MutexLock lock(&mutex_);
    if (!Cancellation::Await(terms.cancellation, &mutex_,
                             absl::Condition(this, &KernelCache::NobodyAsks), terms.deadline))
      return nullptr;
    if (state_ == State::kSettled) return Lookup(name);
    state_ = State::kAsking;
  }
  absl::StatusOr<std::vector<KernelInfo>> kernels = ListKernels(connections_->channel(0), terms);
  absl::MutexLock lock(&mutex_);
  // A refusal is final: asking again would get the same answer and count as another refusal.
  const bool settled = kernels.ok() || absl::IsUnimplemented(kernels.status()) ||
                       absl::IsPermissionDenied(kernels.status());
  state_ = settled ? State::kSettled : State::kUnknown;
  if (kernels.ok()) kernels_ = *std::move(kernels);
  return Lookup(name);
}

const KernelInfo* KernelCache::Lookup(absl::string_view name) const {
  for (const KernelInfo& kernel : kernels_)
    if (kernel.name == name) return &kernel;
  return nullptr;
}

}  // namespace warpcall::client
