// What `warpcall profile` found, for people and for programs.
//
// JSON: kernel, implementation, device, iterations, counters_unavailable (why the counters' fields
// are null; empty when they are not), and rows: everything that ProfileResponse says, in its order;
// what can't be read is null.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "client/cpp/client.h"

namespace warpcall::cli {

// The ten rows that took the device longest, the host's phases, and why counters are missing.
std::string ToText(const std::string& kernel, const client::ProfileReport& report);
nlohmann::json ToJson(const std::string& kernel, const client::ProfileReport& report);
// A line for each row, under one of their JSON names, with the kernel's, the implementation's and
// the device's before; what can't be read is empty.
std::string ToCsv(const std::string& kernel, const client::ProfileReport& report);

}  // namespace warpcall::cli
