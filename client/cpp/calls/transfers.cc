#include "client/cpp/calls/transfers.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/calls/borrowed.h"
#include "client/cpp/calls/put_get.h"
#include "client/cpp/calls/stream.h"
#include "client/cpp/residence.h"
#include "client/cpp/rpc/methods.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

// Returns `status` with a sentence more and the same payloads.
absl::Status WithSentence(const absl::Status& status, absl::string_view sentence) {
  absl::Status longer(status.code(), absl::StrCat(status.message(), "; ", sentence));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { longer.SetPayload(url, payload); });
  return longer;
}

}  // namespace

absl::StatusOr<Resident> Transfers::Put(const Tensor& tensor, const PutOptions& options) {
  if (connections_->may_be_several())
    return absl::InvalidArgumentError(
        "a tensor stays on one server, and this client's address may be several: name one server, "
        "or a sticky front");
  if (tensor.is_resident())
    return absl::InvalidArgumentError(
        absl::StrCat("the tensor is on the server already: ", tensor.handle()));
  const bool is_question = tensor.data().empty() && !options.sha256.empty();
  if (!is_question) RETURN_IF_ERROR(CheckBytes("the tensor", tensor));
  const CallTerms terms = {connections_->Deadline(absl::Now(), options.timeout),
                           options.cancellation};
  ASSIGN_OR_RETURN(Placed placed, Send(tensor, options, terms));
  const bool has_source = !is_question && (tensor.owner() != nullptr || tensor.data().empty());
  placed.resident.tensor =
      has_source
          ? Tensor(std::make_shared<Residence>(placed.handle, Residence::Source{tensor, options}))
          : Tensor::FromHandle(placed.handle, {tensor.data_type(),
                                               {tensor.shape().begin(), tensor.shape().end()}});
  return std::move(placed.resident);
}

absl::StatusOr<Placed> Transfers::Send(const Tensor& tensor, PutOptions options,
                                       const CallTerms& terms) {
  const bool is_free = options.device.empty();
  if (is_free) {
    absl::MutexLock lock(&mutex_);
    options.device = device_;
  }
  const std::string header = EncodePutHeader(tensor, options);
  const Channel& channel = connections_->channel(connections_->Next());
  BorrowedBytes borrowed;
  absl::StatusOr<Placed> placed = absl::UnknownError("not called");
  const auto attempt = [&] {
    PutSession session(tensor, header, connections_->options().chunk_bytes, borrowed.owner());
    Reply reply = channel.Stream(kPut, &session, terms);
    if (reply.status.ok()) placed = session.TakePlaced();
    return reply;
  };
  int attempts = 0;
  const absl::Status status = connections_->Retry(attempt, terms, &attempts).status;
  borrowed.WaitUntilReleased();
  if (!status.ok()) placed = status;
  if (is_free) {
    // A device that is gone is no place for the next tensor.
    absl::MutexLock lock(&mutex_);
    if (placed.ok()) {
      device_ = placed->resident.device;
    } else if (absl::IsNotFound(placed.status()) || absl::IsUnavailable(placed.status())) {
      device_.clear();
    }
  }
  return placed;
}

absl::StatusOr<Tensor> Transfers::Get(const std::string& handle, absl::Duration timeout) {
  const CallTerms terms = {connections_->Deadline(absl::Now(), timeout)};
  const std::string request = EncodeGet(handle);
  const Channel& channel = connections_->channel(connections_->Next());
  absl::StatusOr<Tensor> tensor = absl::UnknownError("not called");
  const auto attempt = [&] {
    GetSession session(request);
    Reply reply = channel.Stream(kGet, &session, terms);
    if (reply.status.ok()) tensor = session.TakeTensor();
    return reply;
  };
  int attempts = 0;
  RETURN_IF_ERROR(connections_->Retry(attempt, terms, &attempts).status);
  return tensor;
}

absl::Status Transfers::PutAgain(absl::Span<const Tensor> inputs, const absl::Status& refusal,
                                 const CallTerms& terms) {
  const std::vector<LostHandle> lost = LostHandles(refusal);
  if (lost.empty()) return refusal;
  const auto was_freed = [](const LostHandle& each) { return each.why == "freed"; };
  if (std::any_of(lost.begin(), lost.end(), was_freed))
    return WithSentence(refusal, "the client does not put again what was freed");
  for (const LostHandle& each : lost) {
    const auto named = std::find_if(inputs.begin(), inputs.end(), [&](const Tensor& input) {
      return input.is_resident() && input.residence()->WasNamed(each.handle);
    });
    if (named == inputs.end()) return refusal;
    if (const std::string why_not = PutAgain(*named, each.handle, terms); !why_not.empty())
      return WithSentence(refusal, why_not);
  }
  return absl::OkStatus();
}

absl::Status Transfers::LostAgain(const absl::Status& end) {
  return LostHandles(end).empty() ? end
                                  : WithSentence(end, "the client had put it again in this call");
}

std::string Transfers::PutAgain(const Tensor& input, const std::string& lost,
                                const CallTerms& terms) {
  Residence& residence = *input.residence();
  switch (residence.BeginRenewal(lost, terms.cancellation, terms.deadline)) {
    case Residence::Renewal::kDone:
      return "";
    case Residence::Renewal::kNoSource:
      return "the client can't put it again because it keeps no copy of the content";
    case Residence::Renewal::kTooSoon:
      return "the client tries once a minute to put it again, and last did so less than 60 s ago";
    case Residence::Renewal::kNoTime:
      return "the call's time was up before it was put again";
    case Residence::Renewal::kMine:
      break;
  }
  const Residence::Source& source = *residence.source();
  const absl::StatusOr<Placed> placed = Send(source.tensor, source.options, terms);
  residence.EndRenewal(placed.ok() ? placed->handle : "");
  if (placed.ok()) return "";
  return absl::StrCat("the client could not put it again: ", placed.status().message());
}

}  // namespace warpcall::client
