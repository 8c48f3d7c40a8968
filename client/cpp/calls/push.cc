#include "client/cpp/calls/push.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/codec/inspect_codec.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

// A push of 1000 problems has about 2000.
constexpr int kEventsMax = 10000;

}  // namespace

absl::Status PushEvents::Add(Fragments response) {
  if (has_verdict_) return BadResponse("an event after the verdict");
  if (++events_ > kEventsMax)
    return BadResponse(absl::StrCat("more than ", kEventsMax, " events of one push"));
  ASSIGN_OR_RETURN(const PushEvent event, DecodePushEvent(response));
  if (event.has_verdict()) {
    has_verdict_ = true;
    verdict_ = event.verdict();
  }
  return watch_.event == nullptr ? absl::OkStatus() : watch_.event(event);
}

absl::StatusOr<PushVerdict> PushEvents::TakeVerdict() {
  if (!has_verdict_) return BadResponse("the stream ended before the verdict");
  return std::move(verdict_);
}

}  // namespace warpcall::client
