// A device's clock, power and energy under a load that lasts: that of one row, launched for
// seconds without a rest.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "server/engine/clock.h"
#include "server/runtime/conditions.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::inspect {

// For each turn of the row: Begin; launches and Look until IsSettled; BeginTimed; launches and Look
// until IsTimed; EndTimed. Used by one thread.
class LoadMeter {
 public:
  // `conditions` may be null: every load settles after kSettleNsMin, and the figures stay unknown.
  LoadMeter(ConditionReader* conditions, Clock clock)
      : conditions_(conditions), clock_(std::move(clock)) {}

  // A GPU's clock swings for some seconds before it stays where power and heat let it.
  static constexpr int64_t kSettleNsMin = 3'000'000'000;
  static constexpr int64_t kSettleNsMax = 10'000'000'000;
  static constexpr int64_t kTimedNs = 3'000'000'000;

  void Begin();
  // Reads the conditions, not more often than kLookNs, and adds them to `stamp`.
  void Look(v1::RunStamp* stamp);
  // True if the medians of the SM clock in the last two windows are within kSettledMhz of each
  // other, or kSettleNsMax have passed.
  bool IsSettled() const;
  void BeginTimed();
  bool IsTimed() const;
  void EndTimed(int64_t launches);

  // Sets the figures of all turns: the median clock, mean power, highest temperature, and energy of
  // a launch.
  void WriteTo(v1::BenchmarkResult* result) const;

 private:
  // A look takes up to a millisecond, in which the device rests.
  static constexpr int64_t kLookNs = 100'000'000;
  static constexpr int64_t kWindowNs = 500'000'000;
  static constexpr double kSettledMhz = 15;

  struct Reading {
    int64_t at_ns;
    DeviceConditions conditions;
  };
  // Median clock of the readings of this turn from `begin_ns` to `end_ns`; 0: there are none.
  double ClockBetween(int64_t begin_ns, int64_t end_ns) const;

  ConditionReader* const conditions_;
  const Clock clock_;
  int64_t begin_ns_ = 0;
  int64_t timed_begin_ns_ = 0;  // 0: not timed now
  std::vector<Reading> turn_;   // of this turn
  std::vector<DeviceConditions> timed_;
  double joules_begin_ = 0;
  double joules_ = 0;
  bool knows_energy_ = true;
  int64_t launches_ = 0;
};

}  // namespace warpcall::inspect
