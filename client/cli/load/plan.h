// Plan of a load run, requests and times, from a seed: the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/types/span.h"

namespace warpcall::cli {

// Numbers from 0 (inclusive) to 1 (exclusive). The standard fixes the engine's output, not that of
// its distributions.
class UniformSource {
 public:
  explicit UniformSource(uint64_t seed) : engine_(seed) {}
  double Next() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 engine_;
};

// Chooses entries of a mix at random, in proportion to their weights.
class EntryChooser {
 public:
  // `weights`: at least one, each above 0.
  EntryChooser(absl::Span<const double> weights, uint64_t seed);
  size_t Next();

 private:
  std::vector<double> ends_;  // ends_[i]: the sum of the weights up to i
  UniformSource random_;
};

enum class Arrivals : uint8_t { kPoisson, kUniform };

struct Arrival {
  int64_t planned_ns = 0;  // from the start of the plan
  size_t entry = 0;
};

// Arrivals of an open loop, without an end and in order of time: independent of each other
// (exponential gaps) or evenly spaced.
class ArrivalPlan {
 public:
  struct Options {
    double rate_per_second;  // above 0
    Arrivals arrivals;
    std::vector<double> weights;
    uint64_t seed;
  };

  explicit ArrivalPlan(const Options& options);
  Arrival Next();

 private:
  const double rate_per_second_;
  const Arrivals arrivals_;
  EntryChooser chooser_;
  UniformSource gaps_;
  double expected_ = 0;  // the next arrival's time in units of 1/rate
};

}  // namespace warpcall::cli
