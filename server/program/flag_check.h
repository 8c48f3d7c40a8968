// Checks what a start would refuse, without starting.
#pragma once

#include "absl/status/status.h"
#include "server/flags/config.h"

namespace warpcall {

// Returns the first mistake in the addresses, device names and files that `config`'s flags name.
// Opens no device, listens nowhere and makes no files. The state of the machine (a GPU that is not
// there, a port in use) is not checked.
absl::Status CheckFlags(const Config& config);

// --check_flags: prints the mistake, or the warnings that a start would log and that there is no
// mistake. Returns the exit status, 0 or 2.
int CheckFlagsAndEnd(const Config& config);

}  // namespace warpcall
