// Measures how long the hypervisor ran something else while this machine's cores had work.
#pragma once

#include <cstdint>
#include <string>

namespace warpcall::inspect {

// Reads the steal time of all cores from /proc/stat, which the kernel counts in ticks of 10 ms.
// Used by one thread.
class StolenTime {
 public:
  // If the file is missing or has no steal time, nothing is ever stolen.
  explicit StolenTime(const std::string& path = "/proc/stat");
  ~StolenTime();
  StolenTime(const StolenTime&) = delete;
  StolenTime& operator=(const StolenTime&) = delete;

  // Since the machine started, all cores together.
  int64_t Ns() const;

 private:
  const int file_;
};

}  // namespace warpcall::inspect
