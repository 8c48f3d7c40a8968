#include "server/engine/retry_pushback.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {
constexpr char kPayloadUrl[] = "warpcall/retry-pushback-ms";
}  // namespace

absl::Status WithRetryPushback(absl::Status status, int64_t pushback_ms) {
  status.SetPayload(kPayloadUrl, absl::Cord(absl::StrCat(pushback_ms)));
  return status;
}

std::optional<int64_t> RetryPushbackMs(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  int64_t pushback_ms;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &pushback_ms))
    return std::nullopt;
  return pushback_ms;
}

}  // namespace warpcall
