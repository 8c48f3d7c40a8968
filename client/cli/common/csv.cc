#include "client/cli/common/csv.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "client/cli/common/screen.h"

namespace warpcall::cli {
namespace {

std::string Quoted(absl::string_view field) {
  if (field.find_first_of(",\"") == absl::string_view::npos) return std::string(field);
  return absl::StrCat("\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\"");
}

}  // namespace

std::string ExactNumber(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}

std::string CsvField(const nlohmann::json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return ExactNumber(value.get<double>());
  if (!value.is_array()) return value.dump();
  return absl::StrJoin(value, "; ", [](std::string* out, const nlohmann::json& item) {
    absl::StrAppend(out, CsvField(item));
  });
}

std::string CsvLine(const std::vector<std::string>& fields) {
  const auto append = [](std::string* out, const std::string& field) {
    absl::StrAppend(out, Quoted(Printable(field)));
  };
  return absl::StrCat(absl::StrJoin(fields, ",", append), "\n");
}

}  // namespace warpcall::cli
