// The connections of a client, and what their calls share: options, retries and their budget.
// Internal to the library.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cpp/rpc/channel.h"
#include "client/cpp/rpc/retry.h"
#include "warpcall/client.h"

namespace warpcall::client {

struct UnaryCall {
  const char* method = nullptr;
  absl::Span<const Piece> message = {};
  CallTerms terms;
};

// Thread-safe.
class Connections {
 public:
  Connections(const std::string& address, ClientOptions options);

  const ClientOptions& options() const { return options_; }
  // INVALID_ARGUMENT when the address is none or an option is out of its range; then nothing is to
  // be called, and there are no channels.
  const absl::Status& options_status() const { return options_status_; }
  // True if the address may be several servers'.
  bool may_be_several() const { return may_be_several_; }
  absl::Time Deadline(absl::Time start, absl::Duration timeout) const {
    return start + (timeout == absl::ZeroDuration() ? options_.timeout : timeout);
  }

  int count() const { return static_cast<int>(channels_.size()); }
  // The connection whose turn it is, for a call that wants the next `connections` from there on.
  size_t Next(int connections = 1);
  // Any number will do.
  const Channel& channel(size_t number) const { return *channels_[number % channels_.size()]; }

  // Calls on one connection until there is an answer that no retry may change; `attempts` is set in
  // any case.
  Reply Call(size_t number, const UnaryCall& call, int* attempts);
  // Retries `attempt`, which makes one call of any kind, as Call does. The terms' cancellation ends
  // pauses early.
  Reply Retry(const std::function<Reply()>& attempt, const CallTerms& terms, int* attempts);

 private:
  Connections(const absl::StatusOr<std::string>& address, ClientOptions options);

  void Pause(absl::Duration pause, Cancellation* cancellation) const;

  const ClientOptions options_;
  const absl::Status options_status_;
  const bool may_be_several_;
  RetryBudget budget_;
  std::vector<std::unique_ptr<const Channel>> channels_;
  std::atomic<size_t> next_{0};
};

}  // namespace warpcall::client
