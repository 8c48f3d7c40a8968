// What a subcommand prints to stdout: a value as JSON, or text for people.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "client/cpp/client.h"

namespace warpcall::cli {

// Indented, with a newline; bytes that are not UTF-8 are replaced.
void PrintJson(const nlohmann::json& value);

nlohmann::json ToJson(const client::AttributeValue& value);
nlohmann::json ToJson(const client::Timing& timing);
nlohmann::json ToJson(const client::LaunchInfo& launch);

}  // namespace warpcall::cli
