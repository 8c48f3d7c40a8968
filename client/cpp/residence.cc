#include "client/cpp/residence.h"

#include <utility>

#include "absl/time/clock.h"
#include "proto/common/check.h"
#include "warpcall/call.h"

namespace warpcall::client {
namespace {

// A server that loses a tensor again and again has no room for it.
constexpr absl::Duration kRenewalPauseMin = absl::Minutes(1);

}  // namespace

Residence::Renewal Residence::BeginRenewal(const std::string& lost, Cancellation* cancellation,
                                           absl::Time deadline) {
  if (!source_.has_value()) return Renewal::kNoSource;
  absl::MutexLock lock(&mutex_);
  if (!Cancellation::Await(cancellation, &mutex_, absl::Condition(this, &Residence::NobodyRenews),
                           deadline))
    return Renewal::kNoTime;
  if (handle_ != lost) return Renewal::kDone;
  const absl::Time now = absl::Now();
  if (now < renewed_ + kRenewalPauseMin) return Renewal::kTooSoon;
  renewed_ = now;
  is_renewed_now_ = true;
  return Renewal::kMine;
}

void Residence::EndRenewal(std::string handle) {
  absl::MutexLock lock(&mutex_);
  WARPCALL_CHECK(is_renewed_now_, handle);
  is_renewed_now_ = false;
  if (!handle.empty()) previous_ = std::exchange(handle_, std::move(handle));
}

}  // namespace warpcall::client
