#include "server/worker/link.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/spawn.h"

namespace warpcall::worker {
namespace {

// How long a failed job's memory is kept for a process that was told to end, and whose device may
// still write there.
constexpr int kEndTimeoutMs = 1000;
// How often a lane that waits for its worker looks whether its work must end.
constexpr int64_t kLookPeriodUs = 50'000;

void CloseAll(const LinkEnds& ends) {
  for (const int fd : {ends.control, ends.mail})
    if (fd >= 0) close(fd);
  if (ends.process >= 0) CloseProcess(ends.process);
  for (const int fd : ends.lanes) close(fd);
}

}  // namespace

absl::StatusOr<MappedMail> MappedMail::Map(int file, size_t lanes) {
  MappedMail mapped;
  const size_t bytes = lanes * sizeof(LaneMail);
  void* memory = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0)
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat("the system refused ", bytes,
                                                     " bytes of shared memory for ", lanes,
                                                     " lanes: ", strerror(errno)));
  mapped.mail_ = static_cast<LaneMail*>(memory);
  mapped.bytes_ = bytes;
  return mapped;
}

MappedMail& MappedMail::operator=(MappedMail&& other) noexcept {
  std::swap(mail_, other.mail_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedMail::~MappedMail() {
  if (mail_ != nullptr) munmap(mail_, bytes_);
}

absl::StatusOr<std::unique_ptr<Link>> Link::Open(LinkEnds ends, int spin_places) {
  absl::StatusOr<MappedMail> mail = MappedMail::Map(ends.mail, ends.lanes.size());
  if (!mail.ok()) {
    CloseAll(ends);
    return std::move(mail).status();
  }
  return std::unique_ptr<Link>(new Link(std::move(ends), *std::move(mail), spin_places));
}

Link::Link(LinkEnds ends, MappedMail mail, int spin_places)
    : ends_(std::move(ends)),
      mail_(std::move(mail)),
      sent_(ends_.lanes.size(), 0),
      places_(spin_places) {
  const timeval period = {0, kLookPeriodUs};
  for (const int lane : ends_.lanes)
    setsockopt(lane, SOL_SOCKET, SO_RCVTIMEO, &period, sizeof(period));
}

Link::~Link() {
  Break();
  CloseAll(ends_);
}

absl::StatusOr<RunReply> Link::Run(size_t lane, const RunRequest& request, const RunWatch* watch) {
  LaneMail& mail = mail_.lane(lane);
  const int socket = ends_.lanes[lane];
  absl::Status sent = mail.requests.Put(request, socket);
  ++sent_[lane];
  RunReply reply;
  if (sent.ok()) sent = mail.replies.Take(sent_[lane], {socket, &places_, watch}, &reply);
  if (sent.ok()) return reply;
  Break();
  AwaitEnd();
  return sent;
}

void Link::Break() {
  if (ends_.process >= 0) KillProcess(ends_.process);
  shutdown(ends_.control, SHUT_RDWR);
  for (const int lane : ends_.lanes) shutdown(lane, SHUT_RDWR);
}

void Link::AwaitEnd() const {
  if (ends_.process < 0) return;
  pollfd process = {ends_.process, POLLIN, 0};
  while (poll(&process, 1, kEndTimeoutMs) < 0 && errno == EINTR) {
  }
}

}  // namespace warpcall::worker
