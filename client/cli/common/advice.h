// What a plan's launch says about its speed before it runs.
#pragma once

#include <string>
#include <vector>

#include "client/cpp/client.h"

namespace warpcall::cli {

// Sentences for who would make it faster, none where there is nothing to say: blocks that leave
// much of the last wave empty, fewer than four of them for each multiprocessor, spills. `device` is
// the one that the description names.
std::vector<std::string> AdviseOnLaunch(const client::Description& description,
                                        const client::DeviceInfo& device);
// The same, and where the work stands on the device's roofline.
std::vector<std::string> Advise(const client::Description& description,
                                const client::DeviceInfo& device);

// FLOP/s of a GPU's float32 lanes, without tensor cores, at a clock that it exceeds; 0 of a CPU.
double Float32FlopsMin(const client::DeviceInfo& device);

}  // namespace warpcall::cli
