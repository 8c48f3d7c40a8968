// One call that is made in stripes. Internal to the library.
#pragma once

#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cpp/calls/stripes.h"
#include "client/cpp/codec/output_buffers.h"
#include "client/cpp/rpc/channel.h"
#include "client/cpp/rpc/connections.h"
#include "warpcall/client.h"

namespace warpcall::client {

// Runs each stripe once, then Finish.
class StripedCall {
 public:
  struct Plan {
    const Call& call;
    const KernelInfo& kernel;
    std::vector<Stripe> stripes;  // at least one
  };

  // `connections` and what the plan refers to outlive it.
  StripedCall(Connections* connections, Plan plan, absl::Time deadline);

  // Makes the call for one stripe and copies the results into place. Called once for each stripe,
  // from any thread.
  void Run(int stripe);

  // REQUIRES: every Run has returned. The whole result, but for `wall`; or the first failure.
  absl::StatusOr<Result> Finish();

 private:
  absl::StatusOr<Result> RunStripe(const Stripe& stripe, size_t connection);
  // Returns the memory for a stripe's outputs. The first stripe to be answered determines the
  // call's outputs, and allocates them all.
  absl::StatusOr<std::vector<char*>> Place(const Stripe& stripe,
                                           const std::vector<TensorSpec>& outputs);

  Connections* const connections_;
  const Plan plan_;
  const absl::Time deadline_;
  const size_t first_connection_;
  Cancellation cancellation_;  // for all stripes; the caller's cancellation ends them too
  absl::Mutex mutex_;
  size_t returned_ ABSL_GUARDED_BY(mutex_) = 0;  // calls of Run
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::optional<OutputBuffers> outputs_ ABSL_GUARDED_BY(mutex_);
  std::vector<Result> results_ ABSL_GUARDED_BY(mutex_);  // by stripe
};

}  // namespace warpcall::client
