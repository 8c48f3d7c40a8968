#include "tests/bench/clock_watch.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace warpcall::bench {

bool ClockWatch::RunsSlowly() {
  constexpr int64_t kBetweenLooksNs = 10'000'000;
  if (conditions_ == nullptr || clock_() < look_at_ns_) return false;
  look_at_ns_ = clock_() + kBetweenLooksNs;
  const DeviceConditions now = conditions_->Read();
  inspect::AddConditions(now, &seen_);
  if (!inspect::RunsSlowly(now)) return false;
  ++dropped_;
  return true;
}

std::string ClockWatch::Describe() const {
  if (seen_.sm_clock_mhz_max() == 0) return "not known";
  return absl::StrFormat(
      "SM clock %d to %d MHz, memory clock %d MHz, at most %d °C and %.0f W, throttled: %s, "
      "samples "
      "dropped: %d",
      seen_.sm_clock_mhz_min(), seen_.sm_clock_mhz_max(), seen_.memory_clock_mhz(),
      seen_.temperature_celsius(), seen_.power_watts(),
      seen_.throttle_reasons().empty() ? "no" : absl::StrJoin(seen_.throttle_reasons(), " and "),
      dropped_);
}

}  // namespace warpcall::bench
