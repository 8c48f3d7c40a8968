#include "kernels/manifest/json_node.h"

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall::manifest {

absl::Status JsonNode::Wrong(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(subject_, path_, path_.empty() ? "" : " ", what));
}

JsonNode JsonNode::Below(const Json& value, absl::string_view step) const {
  return {value, subject_, absl::StrCat(path_, step)};
}

absl::StatusOr<JsonNode> JsonNode::Member(const char* name) const {
  if (!value_.is_object()) return Wrong("is no object");
  const auto at = value_.find(name);
  const JsonNode member =
      Below(at == value_.end() ? value_ : *at, absl::StrCat(path_.empty() ? "" : ".", name));
  if (at == value_.end()) return member.Wrong("is missing");
  return member;
}

absl::StatusOr<std::string> JsonNode::String() const {
  if (!value_.is_string()) return Wrong("is no string");
  return value_.get<std::string>();
}

absl::StatusOr<bool> JsonNode::Bool() const {
  if (!value_.is_boolean()) return Wrong("is neither true nor false");
  return value_.get<bool>();
}

absl::StatusOr<int64_t> JsonNode::Count(int64_t most) const {
  if (!value_.is_number_unsigned()) return Wrong("is no count");
  const auto count = value_.get<uint64_t>();
  if (count > static_cast<uint64_t>(most))
    return Wrong(absl::StrCat("is ", count, "; the limit is ", most));
  return static_cast<int64_t>(count);
}

absl::StatusOr<std::vector<JsonNode>> JsonNode::List() const {
  if (!value_.is_array()) return Wrong("is no list");
  std::vector<JsonNode> nodes;
  for (size_t i = 0; i < value_.size(); ++i)
    nodes.push_back(Below(value_[i], absl::StrCat("[", i, "]")));
  return nodes;
}

absl::StatusOr<std::vector<std::pair<std::string, JsonNode>>> JsonNode::Members() const {
  if (!value_.is_object()) return Wrong("is no object");
  std::vector<std::pair<std::string, JsonNode>> members;
  for (auto at = value_.begin(); at != value_.end(); ++at)
    members.emplace_back(at.key(),
                         Below(at.value(), absl::StrCat(path_.empty() ? "" : ".", at.key())));
  return members;
}

absl::StatusOr<std::string> StringOf(const JsonNode& node, const char* name) {
  ASSIGN_OR_RETURN(const JsonNode member, node.Member(name));
  return member.String();
}

absl::StatusOr<int64_t> CountOf(const JsonNode& node, const char* name, int64_t most) {
  ASSIGN_OR_RETURN(const JsonNode member, node.Member(name));
  return member.Count(most);
}

absl::StatusOr<std::vector<JsonNode>> ListOf(const JsonNode& node, const char* name) {
  ASSIGN_OR_RETURN(const JsonNode member, node.Member(name));
  return member.List();
}

absl::StatusOr<std::vector<std::string>> StringsOf(const JsonNode& node, const char* name) {
  ASSIGN_OR_RETURN(const std::vector<JsonNode> list, ListOf(node, name));
  std::vector<std::string> strings;
  for (const JsonNode& each : list) {
    ASSIGN_OR_RETURN(std::string text, each.String());
    strings.push_back(std::move(text));
  }
  return strings;
}

}  // namespace warpcall::manifest
