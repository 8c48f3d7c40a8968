// Options that several subcommands take.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace warpcall::cli {

// An option that is given once per value; `values` gets them in order.
CLI::Option* AddRepeated(CLI::App* app, const std::string& name, std::vector<std::string>* values,
                         const std::string& help);

// A number from `least` to `most`. CLI::Range lets NaN through.
CLI::Validator Between(double least, double most);

// A type as ParseDataType takes it.
CLI::Validator IsDataType();

// --deadline SECONDS, for the whole call with its retries.
class TimeoutOption {
 public:
  // Stays where it is: `app` writes into it.
  explicit TimeoutOption(CLI::App* app, double default_seconds = kDefaultSeconds)
      : seconds_(default_seconds) {
    app->add_option("--deadline", seconds_, "Give up after this many seconds, retries included")
        ->check(CLI::Range(kSecondsMin, kSecondsMax))
        ->capture_default_str();
  }
  TimeoutOption(const TimeoutOption&) = delete;
  TimeoutOption& operator=(const TimeoutOption&) = delete;

  absl::Duration duration() const { return absl::Seconds(seconds_); }

 private:
  // Long enough for gigabytes over one connection of about 1 GB/s.
  static constexpr double kDefaultSeconds = 60;
  static constexpr double kSecondsMin = 0.001;
  static constexpr double kSecondsMax = 86400;

  double seconds_;
};

}  // namespace warpcall::cli
