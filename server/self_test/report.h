// What a child tells the server that started it, row by row, so that whatever happens to it is
// known to have happened to a row. Both are the same program, but rows may have written anywhere in
// the child's memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/registry.h"
#include "server/engine/service_history.h"

namespace warpcall::self_test {

struct Report {
  enum class Kind : uint32_t {
    kNoDevice,  // `text`: why; the last report
    kStarted,   // with `row`
    kPassed,    // `data_types`, `ns`, `rate` where has_rate is not 0
    kFailed,    // `cause`, `text`, `ns`
    kCrashed,   // with `signal`; the last report
  };

  Kind kind = Kind::kStarted;
  int32_t row = -1;
  pid_t pid = 0;
  int32_t signal = 0;
  Unavailability::Cause cause = Unavailability::Cause::kSelfTest;
  int32_t has_rate = 0;
  uint32_t data_types = 0;  // bit t: at least one case of DataType t
  int64_t ns = 0;           // of the host's clock
  ServiceRate rate;
  char text[512] = {};  // ends with a zero
};
static_assert(std::is_trivially_copyable_v<Report>);

// The text is cut where it does not fit.
void SetText(absl::string_view text, Report* report);

// A packet socket's. UNAVAILABLE when the other end is gone, or sends what is no report: then what
// it sends next is not to be believed either.
absl::Status Send(int socket, const Report& report);
absl::StatusOr<Report> Receive(int socket);

}  // namespace warpcall::self_test
