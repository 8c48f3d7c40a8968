#include "client/cpp/calls/execute.h"

#include <utility>
#include <vector>

#include "client/cpp/calls/borrowed.h"
#include "client/cpp/calls/striped_call.h"
#include "client/cpp/calls/stripes.h"
#include "client/cpp/rpc/methods.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {

absl::StatusOr<Result> ExecuteOnce(Connections* connections, const ExecuteRequest& request,
                                   absl::FunctionRef<absl::StatusOr<Result>(Fragments)> decode) {
  BorrowedBytes borrowed;
  std::vector<Piece> message = EncodeCall(request.call, borrowed.owner());
  int attempts = 0;
  const Reply reply =
      connections->Call(request.connection, {kExecute, message, request.terms}, &attempts);
  message.clear();
  borrowed.WaitUntilReleased();
  RETURN_IF_ERROR(reply.status);
  absl::StatusOr<Result> result = decode(reply.fragments);
  if (result.ok()) result->attempts = attempts;
  return result;
}

CallTerms TermsOf(const CallOptions& options, absl::Time deadline) {
  return {deadline, options.cancellation, options.traceparent};
}

absl::StatusOr<Result> Executor::Execute(const Call& call, absl::Time deadline) {
  const int connections = connections_->count();
  if (connections > 1 && LargeEnoughToStripe(call)) {
    const KernelInfo* kernel = kernels_.Find(call.kernel, TermsOf(call.options, deadline));
    std::vector<Stripe> stripes;
    if (kernel != nullptr) stripes = PlanStripes(call, *kernel, connections);
    if (!stripes.empty()) {
      const auto count = static_cast<int>(stripes.size());
      StripedCall striped(connections_, {call, *kernel, std::move(stripes)}, deadline);
      workers_.Run(count, [&striped](int stripe) { striped.Run(stripe); });
      return striped.Finish();
    }
  }
  return ExecuteOnce(
      connections_, {call, TermsOf(call.options, deadline), connections_->Next()},
      [&call](Fragments message) { return DecodeResult(message, call.destinations); });
}

}  // namespace warpcall::client
