// How much memory there is for this process.
#pragma once

#include <cstdint>
#include <string>

namespace warpcall {

// Physical memory, or the least that a control group of this process allows where that is lower, in
// bytes. `root` stands before /proc and /sys, for tests.
int64_t MemoryLimitBytes(const std::string& root = "");

}  // namespace warpcall
