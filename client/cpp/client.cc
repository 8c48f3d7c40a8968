#include "client/cpp/client.h"

#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/cpp/channel.h"
#include "client/cpp/codec.h"
#include "kernels/common/status_macros.h"

namespace warpcall::client {
namespace {

constexpr char kExecute[] = "/warpcall.v1.KernelService/Execute";
constexpr char kListKernels[] = "/warpcall.v1.KernelService/ListKernels";
constexpr char kListDevices[] = "/warpcall.v1.KernelService/ListDevices";
constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

// Stands in for the owner of borrowed bytes: whoever holds owner() may still read them.
class BorrowedBytes {
 public:
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // Waits until nobody else holds owner(). The transport may have bytes of a call that failed in
  // its hands for a while yet, and the caller is free to reuse its memory once we return.
  void WaitUntilReleased() {
    owner_.reset();
    released_->WaitForNotification();
  }

 private:
  const std::shared_ptr<absl::Notification> released_ = std::make_shared<absl::Notification>();
  std::shared_ptr<const void> owner_{&released_,
                                     [released = released_](const void*) { released->Notify(); }};
};

}  // namespace

const char* ServingStatusName(ServingStatus status) {
  switch (status) {
    case ServingStatus::kUnknown:
      return "UNKNOWN";
    case ServingStatus::kServing:
      return "SERVING";
    case ServingStatus::kNotServing:
      return "NOT_SERVING";
    case ServingStatus::kServiceUnknown:
      return "SERVICE_UNKNOWN";
  }
  return "UNKNOWN";
}

class Client::Impl {
 public:
  Impl(absl::string_view address, ClientOptions options)
      : options_(std::move(options)),
        budget_(options_.retry),
        channel_(std::string(address), options_.stall_timeout) {
    if (options_.sleep == nullptr) options_.sleep = absl::SleepFor;
  }

  absl::Time Deadline(absl::Time start, absl::Duration timeout) const {
    return start + (timeout == absl::ZeroDuration() ? options_.timeout : timeout);
  }

  const Channel& channel() const { return channel_; }

  // Calls until there is an answer that no retry may change; `attempts` is set in any case.
  Reply CallWithRetries(const char* method, absl::Span<const Piece> message, absl::Time deadline,
                        int* attempts) {
    RetrySchedule schedule(options_.retry, &budget_);
    while (true) {
      Reply reply = channel_.Unary(method, message, deadline);
      *attempts = schedule.attempts();
      if (reply.status.ok()) {
        budget_.AddSuccess();
        return reply;
      }
      const auto pause =
          schedule.Next({reply.status.code(), reply.pushback_ms}, absl::Now(), deadline);
      if (!pause.has_value()) return reply;
      options_.sleep(*pause);
    }
  }

 private:
  ClientOptions options_;
  RetryBudget budget_;
  const Channel channel_;
};

Client::Client(absl::string_view address, ClientOptions options)
    : impl_(std::make_unique<Impl>(address, std::move(options))) {}

Client::~Client() = default;

absl::StatusOr<Result> Client::Execute(const Call& call) {
  const absl::Time start = absl::Now();
  BorrowedBytes borrowed;
  std::vector<Piece> message = EncodeCall(call, borrowed.owner());
  int attempts = 0;
  const Reply reply = impl_->CallWithRetries(
      kExecute, message, impl_->Deadline(start, call.options.timeout), &attempts);
  message.clear();
  borrowed.WaitUntilReleased();
  RETURN_IF_ERROR(reply.status);
  absl::StatusOr<Result> result = DecodeResult(reply.fragments);
  if (result.ok()) {
    result->attempts = attempts;
    result->wall = absl::Now() - start;
  }
  return result;
}

absl::StatusOr<Result> Client::Identity(Tensor x, CallOptions options) {
  return Execute({.kernel = "identity", .inputs = {std::move(x)}, .options = std::move(options)});
}

absl::StatusOr<Result> Client::Gelu(Tensor x, absl::string_view approximate, CallOptions options) {
  return Execute({.kernel = "gelu",
                  .inputs = {std::move(x)},
                  .attributes = {{"approximate", std::string(approximate)}},
                  .options = std::move(options)});
}

absl::StatusOr<Result> Client::Softmax(Tensor x, int64_t axis, CallOptions options) {
  return Execute({.kernel = "softmax",
                  .inputs = {std::move(x)},
                  .attributes = {{"axis", axis}},
                  .options = std::move(options)});
}

absl::StatusOr<Result> Client::Matmul(Tensor a, Tensor b, const MatmulAttributes& attributes,
                                      CallOptions options) {
  return Execute({.kernel = "matmul",
                  .inputs = {std::move(a), std::move(b)},
                  .attributes = {{"transpose_a", attributes.transpose_a},
                                 {"transpose_b", attributes.transpose_b},
                                 {"precision", attributes.precision}},
                  .options = std::move(options)});
}

absl::StatusOr<std::vector<KernelInfo>> Client::ListKernels(absl::Duration timeout) {
  int attempts = 0;
  const Reply reply =
      impl_->CallWithRetries(kListKernels, {}, impl_->Deadline(absl::Now(), timeout), &attempts);
  RETURN_IF_ERROR(reply.status);
  return DecodeKernels(reply.fragments);
}

absl::StatusOr<std::vector<DeviceInfo>> Client::ListDevices(absl::Duration timeout) {
  int attempts = 0;
  const Reply reply =
      impl_->CallWithRetries(kListDevices, {}, impl_->Deadline(absl::Now(), timeout), &attempts);
  RETURN_IF_ERROR(reply.status);
  return DecodeDevices(reply.fragments);
}

absl::StatusOr<ServingStatus> Client::Health(absl::string_view service, absl::Duration timeout) {
  const std::string request = EncodeHealthRequest(service);
  const Piece piece{{request.data(), request.size()}, nullptr};
  const Reply reply = impl_->channel().Unary(kHealthCheck, absl::MakeConstSpan(&piece, 1),
                                             impl_->Deadline(absl::Now(), timeout));
  RETURN_IF_ERROR(reply.status);
  return DecodeHealthResponse(reply.fragments);
}

}  // namespace warpcall::client
