// The trailer `warpcall-lost-handles`, kept in the status that a call ends with. Internal to the
// library.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace warpcall::client {

// `trailer` is "HANDLE WHY[,HANDLE WHY]"; LostHandles (client.h) reads it.
absl::Status WithLostHandles(absl::Status status, absl::string_view trailer);

}  // namespace warpcall::client
