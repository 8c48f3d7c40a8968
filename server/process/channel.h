// A socket between two processes of this program that carries whole messages. Both ends are the
// same program, but kernels may have written anywhere in the other one's memory: a receiver trusts
// no byte, limits every size before it makes room, and waits for no sender that stops in the
// middle.
//
//   message: head_bytes u64 | body_bytes u64 | head | body
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/common/descriptor.h"

namespace warpcall::process {

// Two connected local sockets of a type (SOCK_STREAM, ...). RESOURCE_EXHAUSTED where the system has
// none.
absl::StatusOr<std::pair<Descriptor, Descriptor>> MakeSockets(int type);

struct Message {
  std::string head;
  std::string body;
};

// One end. One thread may send while another receives.
class Channel {
 public:
  static constexpr size_t kHeadBytesMax = 64 << 10;
  // Longest pause between two bytes of one message, which is complete in memory when it is sent.
  static constexpr absl::Duration kPauseMax = absl::Seconds(30);

  // Takes over a stream socket.
  explicit Channel(int socket, absl::Duration pause_max = kPauseMax)
      : Channel(Descriptor(socket), pause_max) {}
  explicit Channel(Descriptor socket, absl::Duration pause_max = kPauseMax)
      : socket_(std::move(socket)), pause_max_(pause_max) {}

  // Readable when a message comes, or the other end is closed.
  int socket() const { return socket_.get(); }
  // Closes both directions: waits at either end then see the other end closed.
  void Shutdown() const;

  // UNAVAILABLE when the other end is closed or does not read on within the pause.
  // REQUIRES: `head` has kHeadBytesMax bytes at most.
  absl::Status Send(absl::string_view head, absl::string_view body) const;
  // Send for a signal's handler: returns false for an error. Allocates nothing.
  bool TrySend(absl::string_view head, absl::string_view body) const;

  // Waits for the next message for as long as it takes. UNAVAILABLE when the other end is closed or
  // pauses in the middle; RESOURCE_EXHAUSTED, "BYTES bytes; the limit is BYTES", for a body that is
  // longer; INTERNAL for a head that is. Takes no more memory than twice the bytes that came.
  absl::StatusOr<Message> Receive(size_t body_bytes_max) const;

  // Sends and receives a message that is one plain struct, every bit pattern of which is a value.
  template <typename T>
  absl::Status SendStruct(const T& value) const {
    return Send("", BytesOf(value));
  }
  template <typename T>
  static absl::string_view BytesOf(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return absl::string_view(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  // INTERNAL for a message of another size.
  template <typename T>
  absl::StatusOr<T> ReceiveStruct() const {
    static_assert(std::is_trivially_copyable_v<T>);
    absl::StatusOr<Message> message = Receive(sizeof(T));
    if (!message.ok()) return std::move(message).status();
    if (message->body.size() != sizeof(T))
      return absl::InternalError(
          absl::StrCat("it sent ", message->body.size(), " bytes where a message has ", sizeof(T)));
    T value;
    message->body.copy(reinterpret_cast<char*>(&value), sizeof(T));
    return value;
  }

 private:
  Descriptor socket_;
  absl::Duration pause_max_;
};

}  // namespace warpcall::process
