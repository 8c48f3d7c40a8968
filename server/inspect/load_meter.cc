#include "server/inspect/load_meter.h"

#include <algorithm>
#include <cmath>

#include "proto/common/check.h"
#include "server/inspect/conditions_seen.h"
#include "server/inspect/summary.h"

namespace warpcall::inspect {

void LoadMeter::Begin() {
  turn_.clear();
  begin_ns_ = clock_();
  timed_begin_ns_ = 0;
}

void LoadMeter::Look(v1::RunStamp* stamp) {
  if (conditions_ == nullptr) return;
  const int64_t now_ns = clock_();
  if (!turn_.empty() && now_ns - turn_.back().at_ns < kLookNs) return;
  turn_.push_back({now_ns, conditions_->Read()});
  AddConditions(turn_.back().conditions, stamp);
  if (timed_begin_ns_ > 0) timed_.push_back(turn_.back().conditions);
}

double LoadMeter::ClockBetween(int64_t begin_ns, int64_t end_ns) const {
  std::vector<double> clocks;
  for (const Reading& reading : turn_)
    if (reading.at_ns >= begin_ns && reading.at_ns < end_ns)
      clocks.push_back(reading.conditions.sm_clock_mhz);
  return Summarize(std::move(clocks)).median;
}

bool LoadMeter::IsSettled() const {
  const int64_t now_ns = clock_();
  const int64_t passed_ns = now_ns - begin_ns_;
  if (passed_ns < kSettleNsMin) return false;
  if (conditions_ == nullptr || passed_ns >= kSettleNsMax) return true;
  const double before = ClockBetween(now_ns - 2 * kWindowNs, now_ns - kWindowNs);
  const double last = ClockBetween(now_ns - kWindowNs, now_ns + 1);
  return std::fabs(last - before) <= kSettledMhz;
}

void LoadMeter::BeginTimed() {
  timed_begin_ns_ = clock_();
  if (conditions_ != nullptr) joules_begin_ = conditions_->Read().energy_joules;
}

bool LoadMeter::IsTimed() const { return clock_() - timed_begin_ns_ >= kTimedNs; }

void LoadMeter::EndTimed(int64_t launches) {
  WARPCALL_DCHECK(timed_begin_ns_ > 0 && launches >= 0, launches);
  launches_ += launches;
  if (conditions_ == nullptr) return;
  const double joules = conditions_->Read().energy_joules;
  knows_energy_ = knows_energy_ && joules_begin_ > 0 && joules > joules_begin_;
  joules_ += joules - joules_begin_;
}

void LoadMeter::WriteTo(v1::BenchmarkResult* result) const {
  if (timed_.empty()) return;
  std::vector<double> clocks, watts;
  int32_t temperature = 0;
  for (const DeviceConditions& reading : timed_) {
    clocks.push_back(reading.sm_clock_mhz);
    watts.push_back(reading.power_watts);
    temperature = std::max(temperature, reading.temperature_celsius);
  }
  result->set_settled_clock_mhz(Summarize(std::move(clocks)).median);
  result->set_settled_power_watts(Summarize(std::move(watts)).mean);
  result->set_settled_temperature_celsius(temperature);
  if (knows_energy_ && launches_ > 0)
    result->set_energy_joules(joules_ / static_cast<double>(launches_));
}

}  // namespace warpcall::inspect
