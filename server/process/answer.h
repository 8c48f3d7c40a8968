// Requests and answers over a Channel. A request is any message; its answer is a status or a text,
// whole or in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/process/channel.h"

namespace warpcall::process {

// The first bytes of an answer's head; the status's message follows. The text is the body.
struct AnswerHeader {
  int32_t code = 0;
  uint8_t has_pushback = 0;
  uint8_t more = 0;
  uint8_t is_compile_error = 0;
  int64_t pushback_ms = 0;
};

struct Answer {
  absl::StatusOr<std::string> result = std::string();
  bool more = false;  // a part: another answer follows
};

// Returns the head of the answer, which SendAnswer sends.
std::string AnswerHead(const Answer& answer);

// Sends the status with its retry pushback and whether it is a compiler's (AsCompileError). Cuts a
// message that is too long for the head.
absl::Status SendAnswer(const Channel& channel, const Answer& answer);
// Errors as Channel::Receive's, and INTERNAL for a head that no answer has.
absl::StatusOr<Answer> ReceiveAnswer(const Channel& channel, size_t bytes_max);

// Answers requests one after the other until the other end is closed, which is OK, or an error of
// the channel.
absl::Status ServeRequests(const Channel& channel,
                           const std::function<absl::StatusOr<std::string>(Message)>& answer);

// Calls `gone` on a thread of its own when the channel's other end is closed while this lives.
class EndWatch {
 public:
  // `channel` outlives it.
  EndWatch(const Channel& channel, std::function<void()> gone);
  ~EndWatch();
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

 private:
  const Descriptor stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace warpcall::process
