#include "client/cli/bench/measurements.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/input_file.h"
#include "client/cli/common/output.h"
#include "proto/common/inspect_limits.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

constexpr size_t kFileBytesMax = size_t{64} << 20;

// The member of this name; null where there is none.
const json& Member(const json& object, const char* name) {
  static const json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

absl::StatusOr<std::string> OptionalText(const json& object, const char* name) {
  const json& value = Member(object, name);
  if (value.is_null()) return std::string();
  if (value.is_string()) return value.get<std::string>();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is of type ", value.type_name(), "; it must be a text"));
}

absl::StatusOr<std::string> Text(const json& object, const char* name) {
  ASSIGN_OR_RETURN(std::string text, OptionalText(object, name));
  if (text.empty()) return absl::InvalidArgumentError(absl::StrCat("it has no \"", name, "\""));
  return text;
}

std::string Attributes(const json& object) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : object.items())
    texts.push_back(
        absl::StrCat(name, "=", value.is_string() ? value.get<std::string>() : value.dump()));
  return absl::StrJoin(texts, " ");
}

void AddStamp(const client::RunStamp& stamp, client::RunStamp* all) {
  client::RunStamp merged = stamp;
  merged.MergeFrom(*all);  // fields that earlier points set stay
  if (stamp.sm_clock_mhz_min() > 0 && stamp.sm_clock_mhz_min() < merged.sm_clock_mhz_min())
    merged.set_sm_clock_mhz_min(stamp.sm_clock_mhz_min());
  merged.set_sm_clock_mhz_max(std::max(stamp.sm_clock_mhz_max(), all->sm_clock_mhz_max()));
  merged.set_memory_clock_mhz(std::max(stamp.memory_clock_mhz(), all->memory_clock_mhz()));
  merged.set_samples_dropped(stamp.samples_dropped() + all->samples_dropped());
  *merged.mutable_throttle_reasons() = all->throttle_reasons();
  for (const std::string& reason : stamp.throttle_reasons()) {
    const auto& known = merged.throttle_reasons();
    if (std::find(known.begin(), known.end(), reason) == known.end())
      merged.add_throttle_reasons(reason);
  }
  *all = std::move(merged);
}

absl::Status AddError(const json& point, const MeasuredRow& place, Measurements* all) {
  const json& error = Member(point, "error");
  if (error.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string code, Text(error, "code"));
  ASSIGN_OR_RETURN(const std::string message, OptionalText(error, "message"));
  all->unfinished.push_back(absl::StrCat(place.shape, " ", place.data_type,
                                         place.device.empty() ? "" : " on ", place.device, ": ",
                                         code, ": ", message));
  return absl::OkStatus();
}

absl::Status AddPoint(const json& point, Measurements* all) {
  if (!Member(point, "results").is_array())
    return absl::InvalidArgumentError("a point has no list \"results\"");
  client::BenchmarkReport report;
  RETURN_IF_ERROR(FromJson(point, &report));
  MeasuredRow row{.device = report.device()};
  ASSIGN_OR_RETURN(row.shape, Text(point, "shape"));
  ASSIGN_OR_RETURN(row.data_type, Text(point, "data_type"));
  RETURN_IF_ERROR(AddError(point, row, all));
  if (!report.results().empty() && !row.device.empty()) {
    Conditions& device = all->devices[row.device];
    device.device = row.device;
    AddStamp(report.stamp(), &device.stamp);
  }
  for (client::BenchmarkResult& result : *report.mutable_results()) {
    if (result.implementation().empty())
      return absl::InvalidArgumentError("a result has no \"implementation\"");
    row.result = std::move(result);
    all->rows.push_back(row);
  }
  return absl::OkStatus();
}

// Points whose call ended early do not say on which device they were. Where all others were on one,
// they were, too.
void NameDevices(Measurements* all) {
  if (all->devices.size() != 1) return;
  for (MeasuredRow& row : all->rows)
    if (row.device.empty()) row.device = all->devices.begin()->first;
}

absl::Status Read(const json& value, Measurements* all) {
  ASSIGN_OR_RETURN(all->kernel, Text(value, "kernel"));
  all->attributes = Attributes(Member(value, "attributes"));
  const json& points = Member(value, "points");
  if (!points.is_array()) return absl::InvalidArgumentError("it has no list \"points\"");
  for (const json& point : points) RETURN_IF_ERROR(AddPoint(point, all));
  NameDevices(all);
  const json& server = Member(value, "server");
  ASSIGN_OR_RETURN(const std::string host, OptionalText(server, "host"));
  ASSIGN_OR_RETURN(const std::string server_version, OptionalText(server, "version"));
  ASSIGN_OR_RETURN(const std::string client_version, OptionalText(value, "client_version"));
  ASSIGN_OR_RETURN(const std::string method, OptionalText(value, "method"));
  for (auto& [name, device] : all->devices) {
    device.host = host;
    device.client_version = client_version;
    device.method = method.empty() ? kBenchmarkBurst : method;
    if (device.stamp.server_version().empty()) device.stamp.set_server_version(server_version);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Measurements> ToMeasurements(const std::string& name, const json& value) {
  Measurements all{.name = name, .kernel = {}};
  const absl::Status status = Read(value, &all);
  if (status.ok()) return all;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": not what `warpcall bench --json` prints: ", status.message()));
}

absl::StatusOr<Measurements> ReadMeasurements(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadInputFile(path, kFileBytesMax));
  try {
    return ToMeasurements(path, json::parse(text));
  } catch (const json::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": invalid JSON at byte ", error.byte, " of ", text.size(),
                     "; the file must be the output of `warpcall bench --json`"));
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
  }
}

}  // namespace warpcall::cli
