// The server's ends of all that joins it to one worker process, from that process's start to its
// end.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/common/check.h"
#include "server/process/child.h"
#include "server/worker/mailbox.h"
#include "server/worker/protocol.h"

namespace warpcall::worker {

// One lane's mailboxes.
struct LaneMail {
  Mailbox<RunRequest> requests;
  Mailbox<RunReply> replies;
};

// The worker's or the server's mapping of all lanes' mailboxes, which lie in one file.
class MappedMail {
 public:
  // Does not keep `file`, which has been or is made large enough.
  static absl::StatusOr<MappedMail> Map(int file, size_t lanes);
  MappedMail() = default;
  MappedMail(MappedMail&& other) noexcept { *this = std::move(other); }
  MappedMail& operator=(MappedMail&& other) noexcept;
  ~MappedMail();

  LaneMail& lane(size_t index) const {
    WARPCALL_CHECK((index + 1) * sizeof(LaneMail) <= bytes_, index, bytes_);
    return mail_[index];
  }

 private:
  LaneMail* mail_ = nullptr;
  size_t bytes_ = 0;
};

struct LinkEnds {
  std::unique_ptr<process::Child> child;  // whose channel is for control
  Descriptor mail;                        // the file of the mailboxes
  std::vector<Descriptor> lanes;
};

// Thread-safe, except that each lane is used by one thread at a time.
class Link {
 public:
  // RESOURCE_EXHAUSTED when the mailboxes can't be mapped.
  static absl::StatusOr<std::unique_ptr<Link>> Open(LinkEnds ends, int spin_places);
  // Breaks it.
  ~Link();

  const process::Channel& control() const { return ends_.child->channel(); }

  // Hands the lane's worker thread a job, waits for the result and stores it in `reply`.
  // UNAVAILABLE if the process is gone; nothing touches the job's memory after that. If `watch`,
  // which may be null, says that the work must end, a process that has not answered by then is
  // ended.
  absl::Status Run(size_t lane, const RunRequest& request, const RunWatch* watch, RunReply* reply);

  // Has the worker free a tensor that no job uses any more, and ends a process that takes no
  // message.
  void Free(const FreeResident& resident);

  // Ends the process; waits on its sockets then see them closed. May be called again.
  void Break();

 private:
  Link(LinkEnds ends, MappedMail mail, int spin_places);

  const LinkEnds ends_;
  const MappedMail mail_;
  std::vector<uint32_t> sent_;  // by lane
  SpinPlaces places_;
  absl::Mutex freeing_;  // a message at a time
};

}  // namespace warpcall::worker
