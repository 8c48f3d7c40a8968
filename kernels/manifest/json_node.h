// A value of a manifest in JSON, and the way to it for messages: "kernels[3].grid".
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::manifest {

using Json = nlohmann::json;

// Refers to the value. Errors are INVALID_ARGUMENT.
class JsonNode {
 public:
  // `subject` opens messages: "the manifest: ".
  JsonNode(const Json& value, std::string subject, std::string path = "")
      : value_(value), subject_(std::move(subject)), path_(std::move(path)) {}

  absl::Status Wrong(absl::string_view what) const;

  const Json& value() const { return value_; }
  bool Has(const char* name) const { return value_.is_object() && value_.contains(name); }
  absl::StatusOr<JsonNode> Member(const char* name) const;
  absl::StatusOr<std::string> String() const;
  absl::StatusOr<bool> Bool() const;
  // An integer from 0 to `most`.
  absl::StatusOr<int64_t> Count(int64_t most) const;
  absl::StatusOr<std::vector<JsonNode>> List() const;
  // In the order of their names.
  absl::StatusOr<std::vector<std::pair<std::string, JsonNode>>> Members() const;

 private:
  JsonNode Below(const Json& value, absl::string_view step) const;

  const Json& value_;
  const std::string subject_;
  const std::string path_;
};

// Members that must be there.
absl::StatusOr<std::string> StringOf(const JsonNode& node, const char* name);
absl::StatusOr<int64_t> CountOf(const JsonNode& node, const char* name, int64_t most);
absl::StatusOr<std::vector<JsonNode>> ListOf(const JsonNode& node, const char* name);
absl::StatusOr<std::vector<std::string>> StringsOf(const JsonNode& node, const char* name);

}  // namespace warpcall::manifest
