#include "server/process/answer.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/compiled/program.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"

namespace warpcall::process {
namespace {

// Upper limit of gRPC's messages.
constexpr size_t kRequestBytesMax = std::numeric_limits<int32_t>::max();

}  // namespace

std::string AnswerHead(const Answer& answer) {
  const absl::Status& status = answer.result.status();
  const auto pushback_ms = RetryPushbackMs(status);
  AnswerHeader header;
  header.code = static_cast<int32_t>(status.code());
  header.has_pushback = pushback_ms.has_value() ? 1 : 0;
  header.more = answer.more ? 1 : 0;
  header.is_compile_error = compiled::IsCompileError(status) ? 1 : 0;
  header.pushback_ms = pushback_ms.value_or(0);
  return absl::StrCat(Channel::BytesOf(header),
                      status.message().substr(0, Channel::kHeadBytesMax - sizeof(header)));
}

absl::Status SendAnswer(const Channel& channel, const Answer& answer) {
  return channel.Send(AnswerHead(answer),
                      answer.result.ok() ? absl::string_view(*answer.result) : "");
}

absl::StatusOr<Answer> ReceiveAnswer(const Channel& channel, size_t bytes_max) {
  Message message;
  ASSIGN_OR_RETURN(message, channel.Receive(bytes_max));
  AnswerHeader header;
  if (message.head.size() < sizeof(header))
    return absl::InternalError(absl::StrCat("the other process sent an answer's head of ",
                                            message.head.size(), " bytes; it has ",
                                            sizeof(header)));
  std::memcpy(&header, message.head.data(), sizeof(header));
  if (header.code < 0 || header.code > static_cast<int32_t>(absl::StatusCode::kUnauthenticated))
    return absl::InternalError(absl::StrCat("the other process answered with code ", header.code));
  if (header.code == 0) return Answer{std::move(message.body), header.more != 0};
  absl::Status status(static_cast<absl::StatusCode>(header.code),
                      absl::string_view(message.head).substr(sizeof(header)));
  if (header.is_compile_error != 0) status = compiled::AsCompileError(std::move(status));
  if (header.has_pushback != 0)
    status = WithRetryPushback(std::move(status), std::max(header.pushback_ms, kNeverRetry));
  return Answer{std::move(status), header.more != 0};
}

absl::Status ServeRequests(const Channel& channel,
                           const std::function<absl::StatusOr<std::string>(Message)>& answer) {
  for (;;) {
    absl::StatusOr<Message> request = channel.Receive(kRequestBytesMax);
    if (absl::IsUnavailable(request.status())) return absl::OkStatus();
    RETURN_IF_ERROR(request.status());
    RETURN_IF_ERROR(SendAnswer(channel, {answer(*std::move(request))}));
  }
}

EndWatch::EndWatch(const Channel& channel, std::function<void()> gone)
    : stop_(eventfd(0, EFD_CLOEXEC)),
      thread_([socket = channel.socket(), stop = stop_.get(), gone = std::move(gone)] {
        pollfd watched[] = {{socket, POLLRDHUP, 0}, {stop, POLLIN, 0}};
        while (poll(watched, 2, -1) < 0 && errno == EINTR) {
        }
        if (watched[1].revents == 0) gone();
      }) {}

EndWatch::~EndWatch() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

}  // namespace warpcall::process
