#include "client/cli/bench/measurements.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/catalog.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

constexpr size_t kFileBytesMax = size_t{64} << 20;

// Reads values out of JSON; remembers the first that is not of its kind, and where it is.
class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  const absl::Status& status() const { return status_; }

  // What is not there, or null, is empty or 0, unless `required`.
  std::string Text(const json& object, const char* key, bool required = false) {
    const json* const value = Find(object, key, required);
    if (value == nullptr) return "";
    if (value->is_string()) return value->get<std::string>();
    Fail(key, "a text", *value);
    return "";
  }
  double Number(const json& object, const char* key, bool required = false) {
    const json* const value = Find(object, key, required);
    if (value == nullptr) return 0;
    if (value->is_number()) return value->get<double>();
    Fail(key, "a number", *value);
    return 0;
  }
  int64_t Integer(const json& object, const char* key) {
    const json* const value = Find(object, key, false);
    if (value == nullptr) return 0;
    if (value->is_number_integer()) return value->get<int64_t>();
    Fail(key, "an integer", *value);
    return 0;
  }
  bool Flag(const json& object, const char* key) {
    const json* const value = Find(object, key, false);
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    Fail(key, "true or false", *value);
    return false;
  }
  const json& Array(const json& object, const char* key, bool required = false) {
    return Container(object, key, required, json::value_t::array);
  }
  const json& Object(const json& object, const char* key) {
    return Container(object, key, false, json::value_t::object);
  }

 private:
  const json* Find(const json& object, const char* key, bool required) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (object.is_object() && found != object.end() && !found->is_null()) return &*found;
    if (required) Fail(absl::StrCat("it has no \"", key, "\""));
    return nullptr;
  }
  const json& Container(const json& object, const char* key, bool required, json::value_t type) {
    static const json kEmptyArray = json::array(), kEmptyObject = json::object();
    const bool array = type == json::value_t::array;
    const json& empty = array ? kEmptyArray : kEmptyObject;
    const json* const value = Find(object, key, required);
    if (value == nullptr) return empty;
    if (value->type() == type) return *value;
    Fail(key, array ? "an array" : "an object", *value);
    return empty;
  }
  void Fail(const char* key, const char* wanted, const json& value) {
    Fail(absl::StrCat("\"", key, "\" is of type ", value.type_name(), "; it must be ", wanted));
  }
  void Fail(const std::string& problem) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat(name_, ": not what `warpcall bench --json` prints: ", problem)));
  }

  const std::string name_;
  absl::Status status_;
};

std::string Attributes(const json& object) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : object.items())
    texts.push_back(
        absl::StrCat(name, "=", value.is_string() ? value.get<std::string>() : value.dump()));
  return absl::StrJoin(texts, " ");
}

// What a point's stamp says beyond what other points of the same device said.
void AddStamp(const json& stamp, Reader* reader, Conditions* device) {
  const auto add = [&](const char* key, std::string* value) {
    if (value->empty()) *value = reader->Text(stamp, key);
  };
  add("device_description", &device->description);
  add("driver", &device->driver);
  add("cuda", &device->cuda);
  add("server_version", &device->server_version);
  const int64_t low = reader->Integer(stamp, "sm_clock_mhz_min");
  if (device->sm_clock_mhz_min == 0 || (low > 0 && low < device->sm_clock_mhz_min))
    device->sm_clock_mhz_min = low;
  device->sm_clock_mhz_max =
      std::max(device->sm_clock_mhz_max, reader->Integer(stamp, "sm_clock_mhz_max"));
  device->memory_clock_mhz =
      std::max(device->memory_clock_mhz, reader->Integer(stamp, "memory_clock_mhz"));
  device->samples_dropped += reader->Integer(stamp, "samples_dropped");
  if (device->started_unix_ns == 0)
    device->started_unix_ns = reader->Integer(stamp, "started_unix_ns");
  for (const json& reason : reader->Array(stamp, "throttle_reasons"))
    if (reason.is_string() &&
        device->throttled.find(reason.get<std::string>()) == std::string::npos)
      absl::StrAppend(&device->throttled, device->throttled.empty() ? "" : ", ",
                      reason.get<std::string>());
}

void AddError(const json& error, const MeasuredRow& place, Reader* reader, Measurements* all) {
  if (error.empty()) return;
  all->unfinished.push_back(absl::StrCat(
      place.shape, " ", place.data_type, place.device.empty() ? "" : " on ", place.device, ": ",
      reader->Text(error, "code"), ": ", reader->Text(error, "message")));
}

void AddPoint(const json& point, Reader* reader, Measurements* all) {
  MeasuredRow row{.shape = reader->Text(point, "shape", /*required=*/true),
                  .data_type = reader->Text(point, "data_type", /*required=*/true),
                  .device = reader->Text(point, "device")};
  AddError(reader->Object(point, "error"), row, reader, all);
  const json& results = reader->Array(point, "results", /*required=*/true);
  if (!results.empty() && !row.device.empty()) {
    Conditions& device = all->devices[row.device];
    device.device = row.device;
    AddStamp(reader->Object(point, "stamp"), reader, &device);
  }
  for (const json& result : results) {
    row.implementation = VariantName(reader->Text(result, "implementation", /*required=*/true),
                                     reader->Text(reader->Object(result, "launch"), "variant"));
    row.error = reader->Text(result, "error");
    row.median_ns = reader->Number(result, "median_ns");
    row.low_ns = reader->Number(result, "median_low_ns");
    row.high_ns = reader->Number(result, "median_high_ns");
    row.samples = reader->Integer(result, "iterations");
    row.unstable = reader->Flag(result, "unstable");
    all->rows.push_back(row);
  }
}

// Points whose call ended early do not say on which device they were. Where all others were on one,
// they were, too.
void NameDevices(Measurements* all) {
  if (all->devices.size() != 1) return;
  for (MeasuredRow& row : all->rows)
    if (row.device.empty()) row.device = all->devices.begin()->first;
}

}  // namespace

absl::StatusOr<Measurements> ToMeasurements(const std::string& name, const json& value) {
  Reader reader(name);
  Measurements all{.name = name,
                   .kernel = reader.Text(value, "kernel", /*required=*/true),
                   .attributes = Attributes(reader.Object(value, "attributes"))};
  for (const json& point : reader.Array(value, "points", /*required=*/true))
    AddPoint(point, &reader, &all);
  NameDevices(&all);
  const json& server = reader.Object(value, "server");
  for (auto& [device, conditions] : all.devices) {
    conditions.host = reader.Text(server, "host");
    conditions.client_version = reader.Text(value, "client_version");
    if (conditions.server_version.empty())
      conditions.server_version = reader.Text(server, "version");
  }
  RETURN_IF_ERROR(reader.status());
  return all;
}

absl::StatusOr<Measurements> ReadMeasurements(const std::string& path) {
  constexpr size_t kStep = size_t{1} << 20;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  for (size_t got = kStep; got == kStep && text.size() <= kFileBytesMax;) {
    const size_t begin = text.size();
    text.resize(begin + kStep);
    file.read(text.data() + begin, kStep);
    got = static_cast<size_t>(file.gcount());
    text.resize(begin + got);
  }
  if (!file.is_open() || file.bad())
    return absl::ErrnoToStatus(errno == 0 ? EIO : errno, absl::StrCat("can't read ", path));
  if (text.size() > kFileBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has more than ", kFileBytesMax, " bytes, the most that are read"));
  try {
    return ToMeasurements(path, json::parse(text));
  } catch (const json::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not JSON: byte ", error.byte, " of ", text.size(),
                     " is not what can stand there; `warpcall bench --json` prints such files"));
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
  }
}

}  // namespace warpcall::cli
