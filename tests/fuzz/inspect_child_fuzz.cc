// The first byte chooses a side of the socket between the server and a process that looks into
// something; the rest is what comes there before the other side closes it.
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "server/inspect/child.h"
#include "tests/fuzz/edited.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

constexpr size_t kAnswerBytesMax = 4096;

// A socket in which `bytes` wait, and no more will come; -1 when there is none.
int SocketWith(absl::string_view bytes, int* other) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  const bool sent = bytes.empty() || send(ends[1], bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                                         static_cast<ssize_t>(bytes.size());
  shutdown(ends[1], SHUT_WR);
  *other = ends[1];
  return sent ? ends[0] : -1;
}

std::string CheckAnswer(const inspect::AnswerHeader& header, absl::string_view rest) {
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  absl::StrAppend(&bytes, rest);
  int other = -1;
  inspect::Child child(SocketWith(bytes, &other));
  const absl::StatusOr<inspect::Answer> answer = child.Receive(kAnswerBytesMax);
  close(other);
  const bool whole = header.message_bytes <= rest.size() &&
                     header.payload_bytes <= rest.size() - header.message_bytes;
  if (!answer.ok()) {
    if (header.code == 0 && whole && header.payload_bytes <= kAnswerBytesMax)
      return answer.status().ToString();
    return answer.status().message().size() <= rest.size() + 200 ? "" : "a message out of nowhere";
  }
  if (header.code != 0 || !whole || header.payload_bytes > kAnswerBytesMax)
    return absl::StrCat("an answer of ", answer->payload.size(), " bytes");
  if (answer->more != (header.more != 0)) return "a part that is none, or the other way round";
  return answer->payload == rest.substr(header.message_bytes, header.payload_bytes) ? ""
                                                                                    : "other bytes";
}

std::string CheckAnyAnswer(FuzzInput* decisions) {
  int other = -1;
  inspect::Child child(SocketWith(decisions->Rest(), &other));
  const absl::StatusOr<inspect::Answer> answer = child.Receive(kAnswerBytesMax);
  close(other);
  return !answer.ok() || answer->payload.size() <= kAnswerBytesMax ? "" : "more than was allowed";
}

std::string CheckRequest(uint64_t bytes, absl::string_view rest) {
  std::string sent(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  absl::StrAppend(&sent, rest);
  int other = -1;
  const int socket = SocketWith(sent, &other);
  std::string request;
  int answered = 0;
  const absl::Status served = inspect::ServeParent(
      socket,
      [&](std::string received) -> absl::StatusOr<std::string> {
        ++answered;
        request = std::move(received);
        return "right";
      },
      [] {});
  close(socket);
  inspect::Child child(other);
  const absl::StatusOr<inspect::Answer> answer = child.Receive(kAnswerBytesMax);
  const bool whole = bytes <= rest.size();
  if (served.ok() != whole || answered != (whole ? 1 : 0) || answer.ok() != whole)
    return absl::StrCat(bytes, " of ", rest.size(), " bytes: ", served.ToString());
  return !whole || (request == rest.substr(0, bytes) && answer->payload == "right") ? ""
                                                                                    : "other bytes";
}

}  // namespace

std::string FuzzInspectChild(absl::string_view input) {
  FuzzInput decisions(input);
  switch (decisions.Byte() % 3) {
    case 0: {
      inspect::AnswerHeader good;
      good.message_bytes = decisions.Byte() % 32;
      good.payload_bytes = decisions.Byte();
      const inspect::AnswerHeader header = Edited(good, &decisions);
      return CheckAnswer(header, decisions.Rest());
    }
    case 1:
      return CheckAnyAnswer(&decisions);
    default: {
      const uint8_t exact = decisions.Byte();
      const uint64_t bytes = exact % 2 == 0 ? decisions.Number(8) : exact / 2;
      return CheckRequest(bytes, decisions.Rest());
    }
  }
}

}  // namespace warpcall::testing
