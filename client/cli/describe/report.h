// What `warpcall describe` found, for people and for programs.
//
// JSON: everything that DescribeResponse says, under its names, with the kernel's name and
// `advice`, a list of sentences.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace warpcall::cli {

struct DescribeReport {
  std::string kernel;
  client::Description description;
  std::vector<std::string> advice;
};

// Facts, the names of the files, and the advice.
std::string ToText(const DescribeReport& report);
nlohmann::json ToJson(const DescribeReport& report);

// The files in `language`, each after a line with its name when there are several. NOT_FOUND says
// in which languages there are files.
absl::StatusOr<std::string> SourceText(const client::Description& description,
                                       const std::string& language);

}  // namespace warpcall::cli
