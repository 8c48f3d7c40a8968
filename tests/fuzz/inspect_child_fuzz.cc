// The first byte chooses a side of the socket between the server and an inspecting process; the
// rest is the input of that side before the other side closes the socket.
#include <sys/socket.h>

#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "server/process/answer.h"
#include "tests/fuzz/edited.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

constexpr size_t kAnswerBytesMax = 4096;

// A channel in which `bytes` wait, and no more will come.
process::Channel ChannelWith(absl::string_view bytes, std::unique_ptr<process::Channel>* other) {
  auto sockets = process::MakeSockets(SOCK_STREAM);
  if (!sockets.ok()) return process::Channel(-1);
  *other = std::make_unique<process::Channel>(std::move(sockets->second));
  const bool sent = bytes.empty() || send((*other)->socket(), bytes.data(), bytes.size(),
                                          MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  shutdown((*other)->socket(), SHUT_WR);
  return sent ? process::Channel(std::move(sockets->first)) : process::Channel(-1);
}

// Announced sizes of an answer's head and body, and the bytes that come instead.
struct Sizes {
  uint64_t head_bytes;
  uint64_t body_bytes;
};

std::string CheckAnswer(const Sizes& sizes, const process::AnswerHeader& header,
                        absl::string_view rest) {
  const std::string sent = absl::StrCat(process::Channel::BytesOf(header), rest);
  std::unique_ptr<process::Channel> other;
  const process::Channel channel =
      ChannelWith(absl::StrCat(process::Channel::BytesOf(sizes), sent), &other);
  const absl::StatusOr<process::Answer> answer = process::ReceiveAnswer(channel, kAnswerBytesMax);
  const bool fits =
      sizes.head_bytes <= process::Channel::kHeadBytesMax && sizes.body_bytes <= kAnswerBytesMax;
  const bool whole = fits && sizes.head_bytes + sizes.body_bytes <= sent.size();
  const bool sound = whole && sizes.head_bytes >= sizeof(header) && header.code >= 0 &&
                     header.code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  if (answer.ok() != sound) return absl::StrCat("taken: ", answer.status().ToString());
  if (!sound) return "";
  if (answer->more != (header.more != 0)) return "a part that is none, or the other way round";
  if (answer->result.status().code() != static_cast<absl::StatusCode>(header.code))
    return "another code";
  if (!answer->result.ok())
    return answer->result.status().message().size() <= rest.size() ? ""
                                                                   : "a message out of nowhere";
  return *answer->result == absl::string_view(sent).substr(sizes.head_bytes, sizes.body_bytes)
             ? ""
             : "other bytes";
}

std::string CheckAnyAnswer(FuzzInput* decisions) {
  std::unique_ptr<process::Channel> other;
  const process::Channel channel = ChannelWith(decisions->Rest(), &other);
  const absl::StatusOr<process::Answer> answer = process::ReceiveAnswer(channel, kAnswerBytesMax);
  return !answer.ok() || !answer->result.ok() || answer->result->size() <= kAnswerBytesMax
             ? ""
             : "more than was allowed";
}

std::string CheckRequest(uint64_t bytes, absl::string_view rest) {
  const Sizes sizes = {0, bytes};
  std::unique_ptr<process::Channel> other;
  const process::Channel channel =
      ChannelWith(absl::StrCat(process::Channel::BytesOf(sizes), rest.substr(0, bytes)), &other);
  std::string request;
  int answered = 0;
  const absl::Status served = process::ServeRequests(
      channel, [&](process::Message received) -> absl::StatusOr<std::string> {
        ++answered;
        request = std::move(received.body);
        return "right";
      });
  const bool whole = bytes <= rest.size();
  if (answered != (whole ? 1 : 0) || (whole && !served.ok()))
    return absl::StrCat(bytes, " of ", rest.size(), " bytes: ", served.ToString());
  if (!whole) return "";
  const absl::StatusOr<process::Answer> answer = process::ReceiveAnswer(*other, kAnswerBytesMax);
  return answer.ok() && answer->result.ok() && *answer->result == "right" &&
                 request == rest.substr(0, bytes)
             ? ""
             : "other bytes";
}

}  // namespace

std::string FuzzInspectChild(absl::string_view input) {
  FuzzInput decisions(input);
  switch (decisions.Byte() % 3) {
    case 0: {
      const Sizes good = {sizeof(process::AnswerHeader) + decisions.Byte() % 32, decisions.Byte()};
      const Sizes sizes = Edited(good, &decisions);
      const process::AnswerHeader header = Edited(process::AnswerHeader(), &decisions);
      return CheckAnswer(sizes, header, decisions.Rest());
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
