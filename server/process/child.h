// Processes that this one starts: this very program again, with a channel between the two. The new
// process ends when the channel's other end closes, and so with this process, whatever it is doing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/process/channel.h"
#include "server/process/role.h"

namespace warpcall::process {

// Prefix of environment variables that set flags: WARPCALLD_LISTEN.
inline constexpr char kFlagVariablePrefix[] = "WARPCALLD_";

// The side that started a process. CpuNs, Kill and AwaitEnd are thread-safe.
class Child {
 public:
  // A worker of 64 lanes gets 67.
  static constexpr size_t kDescriptorsMax = 95;

  // Starts a process that logs as this process does. The child gets duplicates of `descriptors`, at
  // most kDescriptorsMax; the caller keeps its own. SIGTERM and other signals blocked here stay
  // blocked, since this process decides when the child ends. RESOURCE_EXHAUSTED when the system has
  // no process or no descriptors left.
  static absl::StatusOr<std::unique_ptr<Child>> Start(RoleFlags flags,
                                                      absl::Span<const int> descriptors = {});

  // Wraps the process `pid` at the other end of `channel`, which ends when the channel is closed.
  // 0: the other end has no process of its own.
  explicit Child(Channel channel, pid_t pid = 0);
  // Closes the channel. Kills soon, without waiting, a process that does not end by itself, such as
  // a stopped one (SIGSTOP).
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const Channel& channel() const { return channel_; }
  // CPU time of all its threads since it began, in nanoseconds; 0 when the process is gone. Never
  // another process's that has its id then.
  int64_t CpuNs() const;
  // Ends the process at once, a stopped one too, and shuts the channel down. May be called again.
  void Kill() const;
  // Waits for the end of the process, at most so long: one that a driver holds on to may take its
  // time.
  void AwaitEnd(absl::Duration timeout) const;

 private:
  Channel channel_;
  const pid_t pid_;
  const int process_;  // a pidfd; -1: there is none to be had
};

// Kills all children that have not ended: a stopped one would outlive this process. Call it last.
void KillChildren();

}  // namespace warpcall::process
