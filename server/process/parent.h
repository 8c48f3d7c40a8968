// The other side of child.h: in a process that Child::Start started.
#pragma once

#include <unistd.h>

#include "absl/status/statusor.h"
#include "server/process/channel.h"

namespace warpcall::process {

// The channel's number; the descriptors given to Child::Start follow. A child finds no others open
// than these and the standard ones.
inline constexpr int kInheritedFirst = STDERR_FILENO + 1;
inline constexpr int kInheritedNext = kInheritedFirst + 1;

// Has the system kill this process when the thread that started it ends, even if this process is
// stopped and cannot look at its channel. A confined process can neither call nor undo it.
void EndWithStarter();

// Returns the channel, which is never destroyed. From now on this process ends with status 1 when
// the other end is closed, whatever its threads do. FAILED_PRECONDITION when no Child::Start left
// one.
absl::StatusOr<const Channel*> JoinParent();

}  // namespace warpcall::process
