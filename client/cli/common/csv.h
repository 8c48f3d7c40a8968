// Comma-separated values, as RFC 4180 has them but for the ends of lines.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace warpcall::cli {

// The fewest digits that read back as the same number; "nan", "inf" and "-inf" for what is none.
std::string ExactNumber(double value);
// A JSON value as a field: empty of null, a list's items apart by "; ", numbers exact.
std::string CsvField(const nlohmann::json& value);
// With its newline; fields are shown as Printable, and quoted where they must be.
std::string CsvLine(const std::vector<std::string>& fields);

}  // namespace warpcall::cli
