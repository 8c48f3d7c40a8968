#include "server/program/flag_check.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/compiled/disk_cache.h"
#include "proto/common/status_macros.h"
#include "server/engine/tuning_cache.h"
#include "server/flags/exposure.h"
#include "server/log/log.h"
#include "server/log/log_writer.h"
#include "server/program/access_files.h"
#include "server/program/reload.h"
#include "server/transport/server.h"
#include "server/transport/span_exporter.h"

namespace warpcall {
namespace {

constexpr int kUsageError = 2;

// "cpu", "cpu:0" or "cuda:1": a name that some machine's device has.
bool IsDeviceName(absl::string_view name) {
  if (name == "cpu") return true;
  return (absl::ConsumePrefix(&name, "cpu:") || absl::ConsumePrefix(&name, "cuda:")) &&
         !name.empty() && absl::c_all_of(name, absl::ascii_isdigit);
}

// `other` stands in messages for the values that are no devices.
absl::Status CheckDeviceNames(absl::string_view flag, const std::string& devices,
                              absl::string_view other) {
  for (const absl::string_view name : absl::StrSplit(devices, ','))
    if (!IsDeviceName(name))
      return absl::InvalidArgumentError(absl::StrCat(
          flag, ": \"", name, "\" is not a device; give ", other, ", or names such as cuda:0,cpu"));
  return absl::OkStatus();
}

absl::Status CheckCaches(const Config& config) {
  if (!config.compile_cache.empty())
    RETURN_IF_ERROR(compiled::DiskCache::Check(config.compile_cache));
  if (config.tuning_cache.empty()) return absl::OkStatus();
  // A start makes the folder of --compile_cache before it looks for a tuning file there.
  const auto folder = std::filesystem::path(config.tuning_cache).parent_path() / "";
  if (folder == std::filesystem::path(config.compile_cache) / "" &&
      !std::filesystem::exists(folder))
    return absl::OkStatus();
  return TuningCache::Check(config.tuning_cache);
}

// Logs the warnings that a start would log.
absl::Status LogStartWarnings(const Config& config) {
  SetLogLevel(std::max(CurrentLogLevel(), LogLevel::kWarning));
  if (const std::string warning = GrpcWarning(config, GrpcServer::GrpcVersion()); !warning.empty())
    Log(LogLevel::kWarning, warning);
  Reloader never_started;
  return OpenAccessFiles(config, &never_started).status();
}

}  // namespace

absl::Status CheckFlags(const Config& config) {
  RETURN_IF_ERROR(CheckExposure(config));
  if (config.devices != "auto")
    RETURN_IF_ERROR(CheckDeviceNames("--devices", config.devices, "auto"));
  if (config.push != "on" && config.push != "off")
    RETURN_IF_ERROR(CheckDeviceNames("--push", config.push, "on, off"));
  if (!config.otlp_endpoint.empty())
    RETURN_IF_ERROR(ParseOtlpEndpoint(config.otlp_endpoint).status());
  RETURN_IF_ERROR(CheckAccessFiles(config));
  return CheckCaches(config);
}

int CheckFlagsAndEnd(const Config& config) {
  absl::Status checked = CheckFlags(config);
  if (checked.ok()) checked = LogStartWarnings(config);
  if (!checked.ok()) {
    Say(STDERR_FILENO, LogLevel::kError, checked.message());
    return kUsageError;
  }
  Say(STDOUT_FILENO, LogLevel::kInfo, "the flags and the files that they name are valid");
  return 0;
}

}  // namespace warpcall
