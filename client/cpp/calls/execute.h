// Execute: a call as one request, or in stripes. Internal to the library.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/calls/kernel_cache.h"
#include "client/cpp/calls/workers.h"
#include "client/cpp/codec/codec.h"
#include "client/cpp/rpc/channel.h"
#include "client/cpp/rpc/connections.h"
#include "warpcall/client.h"

namespace warpcall::client {

struct ExecuteRequest {
  const Call& call;
  CallTerms terms;
  size_t connection = 0;
};

CallTerms TermsOf(const CallOptions& options, absl::Time deadline);

// Makes one request, with retries, and passes the answer to `decode`. Sets the result's `attempts`.
// On return, borrowed bytes are no longer read.
absl::StatusOr<Result> ExecuteOnce(Connections* connections, const ExecuteRequest& request,
                                   absl::FunctionRef<absl::StatusOr<Result>(Fragments)> decode);

// Thread-safe.
class Executor {
 public:
  // `connections` outlives it.
  explicit Executor(Connections* connections)
      : connections_(connections), kernels_(connections), workers_(connections->count()) {}

  // Leaves Result::wall alone.
  absl::StatusOr<Result> Execute(const Call& call, absl::Time deadline);

 private:
  Connections* const connections_;
  KernelCache kernels_;
  Workers workers_;
};

}  // namespace warpcall::client
