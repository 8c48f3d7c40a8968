// Figures of a set of requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace warpcall::bench {

// The value that `fraction` of `sorted` do not exceed (nearest rank); 0 of nothing.
double Percentile(const std::vector<double>& sorted, double fraction);

// What the rounds of one contender at one point gave.
struct Tally {
  std::vector<double> latencies_us;
  double wall_seconds = 0;        // of the rounds together
  double server_cpu_seconds = 0;  // spent by the server's process meanwhile
};

struct Figures {
  int64_t requests = 0;
  double p50_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  double requests_per_second = 0;
  double gigabytes_per_second = 0;  // each way
  double server_cpu_us = 0;         // per request
};

// `bytes`: of a request's tensor, and of its answer's.
Figures Summarize(Tally tally, size_t bytes);

}  // namespace warpcall::bench
