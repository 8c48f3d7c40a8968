// Under which conditions a benchmark was measured, and what two of them differ in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace warpcall::cli {

// Of one device in one benchmark. Empty or 0 where it is not known.
struct Conditions {
  std::string host = "";
  std::string device = "";       // "cuda:0"
  std::string description = "";  // "NVIDIA H200"
  std::string driver = "";
  std::string cuda = "";
  std::string server_version = "";
  std::string client_version = "";
  int64_t sm_clock_mhz_min = 0;
  int64_t sm_clock_mhz_max = 0;
  int64_t memory_clock_mhz = 0;
  std::string throttled = "";  // reasons, with commas
  int64_t samples_dropped = 0;
  int64_t started_unix_ns = 0;
};

struct ConditionLine {
  std::string name;  // "driver"
  std::string before;
  std::string after;
  bool differs = false;  // so that times may do so for that reason alone
};

// What is known of either, in order.
std::vector<ConditionLine> Compare(const Conditions& before, const Conditions& after);

}  // namespace warpcall::cli
