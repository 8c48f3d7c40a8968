#include "server/access/policy.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

using Json = nlohmann::json;

// A certificate's subject may be as long: see Gate.
constexpr size_t kNameBytesMax = 1024;
// A share is a factor of what the queue charges: so that accounts neither stand still nor overflow.
constexpr double kShareMin = 0.01;
constexpr double kShareMax = 100;
constexpr int64_t kRequestsMax = 1'000'000;
constexpr int64_t kBytesMax = int64_t{1} << 50;

absl::Status Wrong(absl::string_view where, absl::string_view what) {
  return absl::InvalidArgumentError(where.empty() ? std::string(what)
                                                  : absl::StrCat(where, ": ", what));
}

// The library takes the last of two members with one name, and says nothing.
absl::StatusOr<Json> ParseJson(absl::string_view text) {
  std::vector<std::set<std::string>> open;  // the names so far of each object that is being read
  std::string twice;
  const auto note = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event != Json::parse_event_t::key) return true;
    const auto& name = parsed.get_ref<const std::string&>();
    if (!open.back().insert(name).second) twice = name;
    return true;
  };
  try {
    Json json = Json::parse(text.begin(), text.end(), note);
    if (!twice.empty())
      return Wrong("", absl::StrCat("\"", twice, "\" stands twice in one object"));
    return json;
  } catch (const Json::exception& error) {
    return Wrong("", error.what());
  }
}

absl::Status CheckName(absl::string_view where, absl::string_view name) {
  if (!name.empty() && name.size() <= kNameBytesMax) return absl::OkStatus();
  return Wrong(
      where, absl::StrCat("a name has ", name.size(), " bytes; it has to be 1 to ", kNameBytesMax));
}

absl::StatusOr<Policy::Names> ToNames(absl::string_view where, const Json& json) {
  if (!json.is_array()) return Wrong(where, "is no list of names");
  Policy::Names names;
  for (const Json& entry : json) {
    if (!entry.is_string()) return Wrong(where, "is no list of names");
    const auto& name = entry.get_ref<const std::string&>();
    RETURN_IF_ERROR(CheckName(where, name));
    if (!names.insert(name).second)
      return Wrong(where, absl::StrCat("\"", name, "\" stands there twice"));
  }
  return names;
}

absl::StatusOr<int64_t> ToCount(absl::string_view where, const Json& json, int64_t max) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() < 1 ||
      json.get<uint64_t>() > static_cast<uint64_t>(max))
    return Wrong(where, absl::StrCat("is no whole number of 1 to ", max));
  return json.get<int64_t>();
}

absl::StatusOr<double> ToShare(absl::string_view where, const Json& json) {
  if (json.is_number())
    if (const auto share = json.get<double>(); share >= kShareMin && share <= kShareMax)
      return share;
  return Wrong(where, absl::StrCat("is no number of ", kShareMin, " to ", kShareMax));
}

absl::Status CheckMethods(absl::string_view where, const Policy::Names& named,
                          const Policy::Names& known) {
  for (const std::string& name : named)
    if (!known.contains(name))
      return Wrong(where, absl::StrCat("\"", name,
                                       "\" is no method; available: ", absl::StrJoin(known, ", ")));
  return absl::OkStatus();
}

absl::Status SetMember(absl::string_view where, absl::string_view key, const Json& json,
                       Policy* policy) {
  const std::string at = absl::StrCat(where, ".", key);
  if (key == "methods") {
    ASSIGN_OR_RETURN(policy->methods, ToNames(at, json));
  } else if (key == "kernels") {
    ASSIGN_OR_RETURN(policy->kernels, ToNames(at, json));
  } else if (key == "implementations") {
    ASSIGN_OR_RETURN(policy->implementations, ToNames(at, json));
  } else if (key == "devices") {
    ASSIGN_OR_RETURN(policy->devices, ToNames(at, json));
  } else if (key == "share") {
    ASSIGN_OR_RETURN(policy->share, ToShare(at, json));
  } else if (key == "requests_in_flight_max") {
    ASSIGN_OR_RETURN(policy->requests_in_flight_max, ToCount(at, json, kRequestsMax));
  } else if (key == "pushes_in_flight_max") {
    ASSIGN_OR_RETURN(policy->pushes_in_flight_max, ToCount(at, json, kRequestsMax));
  } else if (key == "bytes_in_flight_max") {
    ASSIGN_OR_RETURN(policy->bytes_in_flight_max, ToCount(at, json, kBytesMax));
  } else if (key == "resident_bytes_max") {
    ASSIGN_OR_RETURN(policy->resident_bytes_max, ToCount(at, json, kBytesMax));
  } else {
    return Wrong(
        where,
        absl::StrCat("\"", key,
                     "\" is unknown; known: methods, kernels, implementations, devices, "
                     "share, requests_in_flight_max, pushes_in_flight_max, bytes_in_flight_max, "
                     "resident_bytes_max"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Policy> ToPolicy(absl::string_view where, const Json& json,
                                const Policy::Names& methods) {
  if (!json.is_object()) return Wrong(where, "is no object");
  Policy policy;
  for (const auto& [key, value] : json.items())
    RETURN_IF_ERROR(SetMember(where, key, value, &policy));
  if (policy.methods.has_value())
    RETURN_IF_ERROR(CheckMethods(absl::StrCat(where, ".methods"), *policy.methods, methods));
  return policy;
}

}  // namespace

absl::StatusOr<PolicyTable> PolicyTable::Parse(absl::string_view text,
                                               const Policy::Names& methods) {
  Json json;
  ASSIGN_OR_RETURN(json, ParseJson(text));
  if (!json.is_object()) return Wrong("", "it is no object");
  PolicyTable table;
  for (const auto& [key, value] : json.items()) {
    if (key == "default") {
      ASSIGN_OR_RETURN(Policy policy, ToPolicy(key, value, methods));
      table.default_ = std::make_shared<const Policy>(std::move(policy));
      continue;
    }
    if (key != "principals" || !value.is_object())
      return Wrong("", absl::StrCat("\"", key, "\" is ",
                                    key == "principals" ? "no object"
                                                        : "unknown; known: default, principals"));
    for (const auto& [name, entry] : value.items()) {
      RETURN_IF_ERROR(CheckName(key, name));
      ASSIGN_OR_RETURN(Policy policy, ToPolicy(absl::StrCat("principals.", name), entry, methods));
      if (value.size() <= kLabelsMax) policy.label = name;
      table.principals_[name] = std::make_shared<const Policy>(std::move(policy));
    }
  }
  if (table.default_ == nullptr && table.principals_.empty())
    return Wrong("", "it has neither a default nor principals, so nobody could call");
  return table;
}

std::vector<std::string> PolicyTable::labels() const {
  std::vector<std::string> labels;
  for (const auto& [name, policy] : principals_)
    if (!policy->label.empty()) labels.push_back(policy->label);
  return labels;
}

std::shared_ptr<const Policy> PolicyTable::Of(absl::string_view name) const {
  const auto found = name.empty() ? principals_.end() : principals_.find(name);
  return found == principals_.end() ? default_ : found->second;
}

}  // namespace warpcall
