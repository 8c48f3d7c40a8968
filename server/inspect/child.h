// A process for one Benchmark, Profile or Describe: it gets one request and gives one answer, whole
// or in parts, over a local socket. Ends by itself when the other end of its socket is closed,
// whatever it is doing.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::inspect {

// What goes before an answer's message and payload. Both ends are the same program, but what is
// profiled may have written anywhere in the child: the server trusts none of these bytes.
struct AnswerHeader {
  int32_t code = 0;
  uint8_t has_pushback = 0;
  uint8_t more = 0;  // this is a part, and another answer follows
  uint8_t is_compile_error = 0;
  int64_t pushback_ms = 0;
  uint64_t message_bytes = 0;
  uint64_t payload_bytes = 0;
};

// What a child said.
struct Answer {
  std::string payload;
  bool more = false;  // it will say more
};

// The server's side.
class Child {
 public:
  // Starts this program with `arguments`, which lead it to ServeParent.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const std::vector<std::string>& arguments);

  // Takes over a stream socket at whose other end there is somebody in ServeParent; `pid` is the
  // process's, 0 where it is none of its own.
  explicit Child(int socket, pid_t pid = 0);
  // The child ends.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  absl::Status Send(absl::string_view request);
  // Readable when the answer has come, or the child is gone.
  int socket() const { return socket_; }
  // What the child's `answer` sent as a part, or returned; RESOURCE_EXHAUSTED when that has more
  // than `bytes_max`, INTERNAL when the child ended without an answer, stopped in its middle or
  // sent invalid bytes. Takes no more memory than twice the bytes that came.
  absl::StatusOr<Answer> Receive(size_t bytes_max);
  // CPU time of all its threads since it began, in nanoseconds; 0 when it is gone, as it is not
  // before this is unless it crashes: see AwaitParent. Never another process's, who has its id
  // then.
  int64_t CpuNs() const;

 private:
  const int socket_;
  const pid_t pid_;
};

// The child's side: the socket that Child::Start left.
int InheritedSocket();
// Receives the request, sends what `answer` makes of it. `gone` is called on another thread when
// nobody waits for the answer any more: in a process of its own, to end it.
absl::Status ServeParent(int socket,
                         const std::function<absl::StatusOr<std::string>(std::string)>& answer,
                         const std::function<void()>& gone);
// For `answer`, on its thread: sends what is known already, before it returns the rest. An error
// says that nobody is there to read it.
absl::Status SendPart(int socket, absl::string_view payload);
// After that: waits until nobody asks for this process's CPU time any more.
void AwaitParent(int socket);

}  // namespace warpcall::inspect
