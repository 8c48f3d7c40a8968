#include "client/cpp/rpc/connections.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/rpc/address.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

constexpr int kConnectionsMax = 64;
constexpr size_t kSessionBytesMax = 128;
constexpr int64_t kChunkBytesMin = 256;
// gRPC servers take messages of up to 4 MiB unless told otherwise; what is not data needs some of
// that.
constexpr int64_t kChunkBytesMax = (int64_t{4} << 20) - 1024;

// By ASCII, where a space is none.
bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

absl::Status Check(const Credentials& credentials) {
  if (credentials.cert.empty() != credentials.key.empty())
    return absl::InvalidArgumentError("credentials: cert and key come together");
  if (!credentials.tls && !(credentials.ca.empty() && credentials.cert.empty()))
    return absl::InvalidArgumentError("credentials: certificates are for TLS, and tls is false");
  if (!IsPrintable(credentials.token))
    return absl::InvalidArgumentError(
        "credentials: the token has a space or another character that is none of ASCII's printable "
        "ones; the client's file has the token alone");
  return absl::OkStatus();
}

absl::Status Check(const ClientOptions& options, const absl::Status& address_status) {
  RETURN_IF_ERROR(address_status);
  RETURN_IF_ERROR(Check(options.credentials));
  if (options.connections < 1 || options.connections > kConnectionsMax)
    return absl::InvalidArgumentError(absl::StrCat("connections is ", options.connections,
                                                   "; it must be 1 to ", kConnectionsMax));
  if (!IsPrintable(options.session) || options.session.size() > kSessionBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("session is \"", absl::CEscape(options.session),
                                                   "\"; it must be at most ", kSessionBytesMax,
                                                   " printable ASCII characters, no spaces"));
  if (options.stall_timeout <= absl::ZeroDuration())
    return absl::InvalidArgumentError(absl::StrCat(
        "stall_timeout is ", absl::FormatDuration(options.stall_timeout), "; it must be over 0"));
  if (options.chunk_bytes < kChunkBytesMin || options.chunk_bytes > kChunkBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("chunk_bytes is ", options.chunk_bytes,
                                                   "; it must be ", kChunkBytesMin, " to ",
                                                   kChunkBytesMax));
  return absl::OkStatus();
}

}  // namespace

Connections::Connections(const std::string& address, ClientOptions options)
    : Connections(ParseAddress(address), std::move(options)) {}

Connections::Connections(const absl::StatusOr<std::string>& address, ClientOptions options)
    : options_(std::move(options)),
      options_status_(Check(options_, address.status())),
      may_be_several_(options_status_.ok() && !IsOneServer(*address)),
      budget_(options_.retry) {
  if (!options_status_.ok()) return;
  for (int i = 0; i < options_.connections; ++i)
    channels_.push_back(std::make_unique<const Channel>(
        *address, ChannelOptions{options_.stall_timeout, options_.observe, options_.queued,
                                 options_.credentials, options_.session}));
}

size_t Connections::Next(int connections) {
  WARPCALL_DCHECK(connections >= 1, connections);
  return next_.fetch_add(static_cast<size_t>(connections), std::memory_order_relaxed);
}

Reply Connections::Call(size_t number, const UnaryCall& call, int* attempts) {
  const auto attempt = [&] { return channel(number).Unary(call.method, call.message, call.terms); };
  return Retry(attempt, call.terms, attempts);
}

Reply Connections::Retry(const std::function<Reply()>& attempt, const CallTerms& terms,
                         int* attempts) {
  RetrySchedule schedule(options_.retry, &budget_);
  while (true) {
    Reply reply = attempt();
    *attempts = schedule.attempts();
    if (reply.status.ok()) {
      budget_.AddSuccess();
      return reply;
    }
    const auto pause =
        schedule.Next({reply.status.code(), reply.pushback_ms}, absl::Now(), terms.deadline);
    if (!pause.has_value()) return reply;
    Pause(*pause, terms.cancellation);
  }
}

void Connections::Pause(absl::Duration pause, Cancellation* cancellation) const {
  if (options_.sleep != nullptr) return options_.sleep(pause);
  if (cancellation != nullptr) return cancellation->WaitFor(pause);
  absl::SleepFor(pause);
}

}  // namespace warpcall::client
