// Samples a GPU's clocks during a measurement, and describes them afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "server/engine/clock.h"
#include "server/inspect/conditions_seen.h"
#include "server/runtime/conditions.h"

namespace warpcall::bench {

class ClockWatch {
 public:
  // `conditions` may be null where nothing reports clocks.
  explicit ClockWatch(ConditionReader* conditions, Clock clock = MonotonicNs)
      : conditions_(conditions), clock_(std::move(clock)) {}

  // Returns true while the GPU runs below 75 % of its default clock. Returns false without a new
  // sample if the last one is less than 10 ms old.
  bool RunsSlowly();

  ConditionReader* conditions() const { return conditions_; }
  // Conditions seen so far. Other readers of the conditions add to them.
  v1::RunStamp* stamp() { return &seen_; }

  // Summary of the samples: "SM clock 1755 to 1980 MHz, ..., samples dropped: 0".
  std::string Describe() const;

 private:
  ConditionReader* const conditions_;
  const Clock clock_;
  int64_t look_at_ns_ = 0;
  int64_t dropped_ = 0;
  v1::RunStamp seen_;
};

}  // namespace warpcall::bench
