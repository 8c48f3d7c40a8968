// Starts this very program again, with descriptors under fixed numbers.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace warpcall {

// Takes as many descriptors as the hard limit allows, where the usual soft one is 1024 and may be
// under kBeyondInherited.
void RaiseDescriptorLimit();

// FAILED_PRECONDITION where the limit is lower than a server needs: descriptors of its own, numbers
// for those of its processes, and room for connections.
absl::Status CheckDescriptorLimit();

// In the new process: the first of the descriptors passed, the others follow. Above what a process
// just started has open.
inline constexpr int kInheritedFirst = 64;

// Where a descriptor must lie before it is passed on, beyond the numbers of those passed: see
// MoveBeyondInherited. A worker of 64 lanes gets 68.
inline constexpr int kBeyondInherited = 160;

// A duplicate of `fd` at kBeyondInherited or above, closed on exec; `fd` itself is closed. -1:
// there is none.
int MoveBeyondInherited(int fd);

// What the environment's variables with flags begin with: WARPCALLD_LISTEN.
inline constexpr char kFlagVariablePrefix[] = "WARPCALLD_";

// `arguments` without the program's name, --log_level and --log_format; `inherited` at
// kBeyondInherited or above, at most kBeyondInherited - kInheritedFirst of them. SIGTERM and what
// else this process blocks stays blocked: this process decides when the other ends. Nobody waits
// for it, and its id, which is returned, may be another's once it has ended: sockets say when that
// is.
absl::StatusOr<pid_t> SpawnSelf(const std::vector<std::string>& arguments,
                                const std::vector<int>& inherited);

// A descriptor of the process `pid` (pidfd_open) that SpawnSelf started, which holds the other end
// of `socket`; to be closed by CloseProcess. -1 where there is none to be had, or the process has
// ended and its id may be another's.
int OpenProcess(pid_t pid, int socket);
void CloseProcess(int process);

// Ends the process behind OpenProcess's descriptor at once, a stopped one too.
void KillProcess(int process);

// Ends the processes behind all of OpenProcess's descriptors that are still open: a stopped process
// would outlive this one. Call it last.
void KillProcesses();

// In the new process: closes what others left open for it below kInheritedFirst.
void CloseUnexpectedDescriptors();

}  // namespace warpcall
