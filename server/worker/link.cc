#include "server/worker/link.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::worker {
namespace {

// Time for which a failed job's memory is kept after its process was asked to end, since the
// process's device may still write there.
constexpr absl::Duration kEndTimeout = absl::Seconds(1);
// Interval at which a lane that waits for its worker checks for the end of its work.
constexpr int64_t kLookPeriodUs = 50'000;

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
  MappedMail mail;
  ASSIGN_OR_RETURN(mail, MappedMail::Map(ends.mail.get(), ends.lanes.size()));
  return std::unique_ptr<Link>(new Link(std::move(ends), std::move(mail), spin_places));
}

Link::Link(LinkEnds ends, MappedMail mail, int spin_places)
    : ends_(std::move(ends)),
      mail_(std::move(mail)),
      sent_(ends_.lanes.size(), 0),
      places_(spin_places) {
  const timeval period = {0, kLookPeriodUs};
  for (const Descriptor& lane : ends_.lanes)
    setsockopt(lane.get(), SOL_SOCKET, SO_RCVTIMEO, &period, sizeof(period));
}

Link::~Link() { Break(); }

absl::Status Link::Run(size_t lane, const RunRequest& request, const RunWatch* watch,
                       RunReply* reply) {
  WARPCALL_CHECK(lane < ends_.lanes.size(), lane, ends_.lanes.size());
  LaneMail& mail = mail_.lane(lane);
  const int socket = ends_.lanes[lane].get();
  absl::Status done = mail.requests.Put(request, socket);
  ++sent_[lane];
  if (done.ok()) done = mail.replies.Take(sent_[lane], {socket, &places_, watch}, reply);
  if (done.ok()) return done;
  Break();
  ends_.child->AwaitEnd(kEndTimeout);
  return done;
}

void Link::Free(const FreeResident& resident) {
  absl::MutexLock lock(&freeing_);
  if (!control().SendStruct(resident).ok()) Break();
}

void Link::Break() {
  ends_.child->Kill();
  for (const Descriptor& lane : ends_.lanes) shutdown(lane.get(), SHUT_RDWR);
}

}  // namespace warpcall::worker
