#include "client/cpp/rpc/lost_handles.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_split.h"
#include "warpcall/client.h"

namespace warpcall::client {
namespace {

// Its form is that of the payload of RetryPushbackMs.
constexpr char kPayload[] = "warpcall/warpcall-lost-handles";

}  // namespace

absl::Status WithLostHandles(absl::Status status, absl::string_view trailer) {
  status.SetPayload(kPayload, absl::Cord(trailer));
  return status;
}

std::vector<LostHandle> LostHandles(const absl::Status& status) {
  std::vector<LostHandle> lost;
  const auto payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return lost;
  for (const absl::string_view entry :
       absl::StrSplit(std::string(*payload), ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(entry, absl::MaxSplits(' ', 1));
    lost.push_back({parts.first, parts.second});
  }
  return lost;
}

}  // namespace warpcall::client
