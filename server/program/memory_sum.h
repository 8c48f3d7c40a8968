// Adds up the host memory that the flags allow; README explains the sum.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "server/flags/config.h"

namespace warpcall {

// Beside some 100 MiB of the server's own and 64 KiB a connection. All in MiB.
struct MemorySum {
  MemorySum(const Config& config, int devices);
  int64_t sum_mib() const {
    return staging_mib + received_mib + inflated_mib + inspection_mib + resident_mib;
  }

  int64_t staging_mib;
  int64_t received_mib;
  int64_t inflated_mib;  // messages that came compressed, and lists: one principal has half
  int64_t inspection_mib;
  int64_t resident_mib;  // tensors that stay on the CPU device
};

// How much memory the process may use until it ends calls whose messages are on their way in.
// `resident_bytes`: of the tensors that stay in host memory. Their unused room is not for messages.
int64_t ShedLimitBytes(const Config& config, int devices, int64_t resident_bytes);

// Logs the sum. FAILED_PRECONDITION where the machine, or its control group, has less memory than
// staging takes: load uses staging up to its last byte, so the system would end the server then.
// Less than the whole sum is only warned of.
absl::Status CheckMemory(const Config& config, int devices);

}  // namespace warpcall
