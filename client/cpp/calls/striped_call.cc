#include "client/cpp/calls/striped_call.h"

#include <algorithm>
#include <utility>

#include "client/cpp/calls/execute.h"
#include "client/cpp/codec/codec.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

// Adds what Result::stripes says is added.
void Merge(const Result& stripe, Result* whole) {
  whole->timing.queue_ns += stripe.timing.queue_ns;
  whole->timing.copy_in_ns += stripe.timing.copy_in_ns;
  whole->timing.h2d_ns += stripe.timing.h2d_ns;
  whole->timing.kernel_ns += stripe.timing.kernel_ns;
  whole->timing.d2h_ns += stripe.timing.d2h_ns;
  whole->timing.total_ns = std::max(whole->timing.total_ns, stripe.timing.total_ns);
  whole->launch.bytes_moved += stripe.launch.bytes_moved;
  whole->launch.flops += stripe.launch.flops;
  whole->launch.gpu_kernels += stripe.launch.gpu_kernels;
  whole->attempts = std::max(whole->attempts, stripe.attempts);
}

}  // namespace

StripedCall::StripedCall(Connections* connections, Plan plan, absl::Time deadline)
    : connections_(connections),
      plan_(std::move(plan)),
      deadline_(deadline),
      first_connection_(connections->Next(static_cast<int>(plan_.stripes.size()))),
      cancellation_(plan_.call.options.cancellation),
      results_(plan_.stripes.size()) {
  WARPCALL_DCHECK(!plan_.stripes.empty());
}

void StripedCall::Run(int stripe) {
  const auto index = static_cast<size_t>(stripe);
  WARPCALL_CHECK(index < plan_.stripes.size(), stripe, plan_.stripes.size());
  absl::StatusOr<Result> result = RunStripe(plan_.stripes[index], first_connection_ + index);
  absl::MutexLock lock(&mutex_);
  ++returned_;
  if (result.ok()) {
    results_[index] = *std::move(result);
  } else if (failure_.ok()) {
    // The others' CANCELLED comes after it.
    failure_ = result.status();
    cancellation_.Cancel();
  }
}

absl::StatusOr<Result> StripedCall::RunStripe(const Stripe& stripe, size_t connection) {
  const Call call = StripeCall(plan_.call, plan_.kernel, stripe);
  const auto place = [&](const std::vector<TensorSpec>& outputs) { return Place(stripe, outputs); };
  const CallTerms terms = {deadline_, &cancellation_, call.options.traceparent};
  const auto decode = [&](Fragments message) -> absl::StatusOr<Result> {
    ASSIGN_OR_RETURN(Result result, DecodeResultInto(message, place));
    if (!result.outputs.empty())
      return BadResponse("outputs that stay without having been asked to");
    return result;
  };
  return ExecuteOnce(connections_, {call, terms, connection}, decode);
}

absl::StatusOr<std::vector<char*>> StripedCall::Place(const Stripe& stripe,
                                                      const std::vector<TensorSpec>& outputs) {
  std::vector<TensorSpec> specs = outputs;
  std::vector<int64_t> begin_elements;
  for (TensorSpec& spec : specs) {
    ASSIGN_OR_RETURN(OutputPlace place, PlaceOutput(plan_.call, plan_.kernel, stripe, spec.shape));
    spec.shape = std::move(place.whole_shape);
    begin_elements.push_back(place.begin_element);
  }

  absl::MutexLock lock(&mutex_);
  if (!outputs_.has_value()) {
    ASSIGN_OR_RETURN(outputs_, OutputBuffers::Allocate(specs, plan_.call.destinations));
  } else if (specs != outputs_->specs()) {
    return BadResponse("outputs that differ from stripe to stripe in number, data type or shape");
  }
  std::vector<char*> places;
  for (size_t i = 0; i < specs.size(); ++i)
    places.push_back(outputs_->data(i) +
                     static_cast<size_t>(begin_elements[i]) * ElementBytes(specs[i].data_type));
  return places;
}

absl::StatusOr<Result> StripedCall::Finish() {
  absl::MutexLock lock(&mutex_);
  WARPCALL_DCHECK(returned_ == results_.size(), returned_, results_.size());
  RETURN_IF_ERROR(failure_);
  Result whole = std::move(results_.front());
  for (size_t i = 1; i < results_.size(); ++i) Merge(results_[i], &whole);
  whole.outputs = outputs_->Release();
  whole.stripes = static_cast<int>(results_.size());
  return whole;
}

}  // namespace warpcall::client
