// How much of the machine is for this process: what its control groups and limits leave of it.
#pragma once

#include <cstdint>
#include <string>

namespace warpcall {

// Physical memory, or the least that a control group of this process or its limit of addresses
// (`ulimit -v`) allows where that is lower, in bytes. `root` stands before /proc and /sys, for
// tests.
int64_t MemoryLimitBytes(const std::string& root = "");

// Processors that this process may keep busy: `cpus`, those that it may run on, or the least that a
// control group allows where that is lower, rounded up; 1 at least.
int UsableCpus(int cpus, const std::string& root = "");
// Of those that the system says that it may run on.
int UsableCpus();

// Threads that control groups of this process allow, all their processes' together: pids.max. -1:
// as many as it likes.
int64_t TaskLimit(const std::string& root = "");

}  // namespace warpcall
