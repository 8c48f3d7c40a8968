// The share of the machine that control groups and limits leave to this process.
#pragma once

#include <cstdint>
#include <string>

namespace warpcall {

// Returns the physical memory in bytes, or the lowest limit of this process's control groups
// and address space (`ulimit -v`) if that is lower. `root` stands before /proc and /sys, for
// tests.
int64_t MemoryLimitBytes(const std::string& root = "");

// Returns the number of processors that this process may keep busy, at least 1: `cpus`, those it
// may run on, or the lowest limit of its control groups if that is lower, rounded up.
int UsableCpus(int cpus, const std::string& root = "");
// Counts from the processors that the system says this process may run on.
int UsableCpus();

// Returns the number of threads that the control groups of this process allow to all their
// processes together (pids.max); -1: unlimited.
int64_t TaskLimit(const std::string& root = "");

}  // namespace warpcall
