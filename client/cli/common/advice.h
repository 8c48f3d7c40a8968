// Advice on a plan's speed from its launch, before it runs.
#pragma once

#include <string>
#include <vector>

#include "warpcall/client.h"

namespace warpcall::cli {

// Sentences for who would make it faster, none where there is nothing to say: blocks that leave
// much of the last wave empty, fewer than four of them for each multiprocessor, spills. `device` is
// the one that the description names.
std::vector<std::string> AdviseOnLaunch(const client::Description& description,
                                        const client::DeviceInfo& device);
// Returns AdviseOnLaunch's advice, and the position of the work on the device's roofline.
std::vector<std::string> Advise(const client::Description& description,
                                const client::DeviceInfo& device);

// FLOP/s of a GPU's float32 lanes, without tensor cores, at a clock below the real one; 0 for CPUs.
double Float32FlopsMin(const client::DeviceInfo& device);

}  // namespace warpcall::cli
