// Describes a server: warpcall kernels, devices, health, version. `health` exits with status 0 when
// the server reports SERVING, and with 1 in every other case, for use as a health check.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/command.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/screen.h"
#include "client/cli/common/table.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

using client::ServerDescription;
using nlohmann::json;

std::vector<std::string> TypeNames(const client::ImplementationInfo& implementation) {
  std::vector<std::string> names;
  for (const DataType type : implementation.data_types) names.push_back(DataTypeName(type));
  return names;
}

// Most take every type; their names would take the summary's place.
std::string TypesText(const client::ImplementationInfo& implementation) {
  if (implementation.data_types.size() == static_cast<size_t>(kDataTypeCount)) return "all";
  return absl::StrJoin(TypeNames(implementation), ",");
}

json ToJson(const client::KernelInfo& kernel) {
  json attributes = json::array();
  for (const client::AttributeInfo& attribute : kernel.attributes) {
    attributes.push_back({{"name", attribute.name},
                          {"summary", attribute.summary},
                          {"default_value", cli::ToJson(attribute.default_value)},
                          {"allowed_values", attribute.allowed_values},
                          {"required", attribute.required}});
  }
  json implementations = json::array();
  for (const client::ImplementationInfo& implementation : kernel.implementations) {
    implementations.push_back({{"name", implementation.name},
                               {"family", implementation.family},
                               {"device_kind", implementation.device_kind},
                               {"summary", implementation.summary},
                               {"data_types", TypeNames(implementation)},
                               {"unavailable", implementation.unavailable},
                               {"variants", implementation.variants}});
  }
  return {{"name", kernel.name},
          {"summary", kernel.summary},
          {"input_names", kernel.input_names},
          {"inputs_min", kernel.inputs_min},
          {"attributes", std::move(attributes)},
          {"implementations", std::move(implementations)}};
}

std::string KernelText(const client::KernelInfo& kernel) {
  std::string text = Fitted("",
                            absl::StrCat(kernel.name, "(", absl::StrJoin(kernel.input_names, ", "),
                                         "): ", kernel.summary),
                            0);
  if (kernel.inputs_min > 0)
    absl::StrAppend(&text, "  takes ", kernel.inputs_min, " to ", kernel.input_names.size(),
                    " inputs, as its attributes say\n");
  for (const client::AttributeInfo& attribute : kernel.attributes) {
    const std::string shown =
        attribute.required ? "... (required)" : AttributeText(attribute.default_value);
    const std::string allowed =
        attribute.allowed_values.empty()
            ? ""
            : absl::StrCat(" (", absl::StrJoin(attribute.allowed_values, ", "), ")");
    const std::string before = absl::StrCat("  --attribute ", attribute.name, "=", shown, "  ");
    absl::StrAppend(&text, Fitted(before, attribute.summary + allowed, before.size()));
  }
  return text;
}

struct KernelsOptions {
  explicit KernelsOptions(const Arguments& arguments) : timeout(arguments) {
    arguments.Add("kernel", &kernel, "List this kernel alone");
  }
  TimeoutOption timeout;
  std::string kernel;
};

int RunKernels(const Globals& globals, const KernelsOptions& options) {
  client::Client client(globals.server, OptionsOf(globals));
  const std::string& name = options.kernel;
  auto kernels = name.empty()
                     ? client.ListKernels(options.timeout.duration())
                     : ListKernelsWith({.kernel = name}, &client, options.timeout.duration());
  if (!kernels.ok()) return Refused(kernels.status());
  if (!name.empty())
    std::erase_if(*kernels, [&](const auto& kernel) { return kernel.name != name; });
  if (globals.json) {
    json list = json::array();
    for (const client::KernelInfo& kernel : *kernels) list.push_back(ToJson(kernel));
    PrintJson({{"kernels", std::move(list)}});
    return kExitOk;
  }
  for (const client::KernelInfo& kernel : *kernels) PrintText(KernelText(kernel));
  Table table({"KERNEL", "IMPLEMENTATION", "DEVICE", "TYPES", "VARIANTS", "SUMMARY"});
  for (const client::KernelInfo& kernel : *kernels) {
    for (const client::ImplementationInfo& implementation : kernel.implementations) {
      table.AddRow({kernel.name, implementation.name, implementation.device_kind,
                    TypesText(implementation), absl::StrJoin(implementation.variants, ", "),
                    implementation.unavailable.empty()
                        ? implementation.summary
                        : absl::StrCat("UNAVAILABLE: ", implementation.unavailable)});
    }
  }
  PrintText(absl::StrCat("\n", table.ToString()));
  return kExitOk;
}

json ToJson(const client::DeviceInfo& device) {
  return {{"name", device.name},
          {"kind", device.kind},
          {"description", device.description},
          {"memory_bytes", device.memory_bytes},
          {"multiprocessors", device.multiprocessors},
          {"l2_bytes", device.l2_bytes},
          {"shared_memory_per_block_bytes", device.shared_memory_per_block_bytes},
          {"compute_capability", device.compute_capability},
          {"healthy", device.healthy},
          {"measured_bandwidth_bytes_per_second", device.measured_bandwidth_bytes_per_second}};
}

int RunDevices(const Globals& globals, const TimeoutOption& timeout) {
  client::Client client(globals.server, OptionsOf(globals));
  const auto devices = client.ListDevices(timeout.duration());
  if (!devices.ok()) return Refused(devices.status());
  if (globals.json) {
    json list = json::array();
    for (const client::DeviceInfo& device : *devices) list.push_back(ToJson(device));
    PrintJson({{"devices", std::move(list)}});
    return kExitOk;
  }
  Table table({"DEVICE", "KIND", "HEALTHY", ">MEMORY", ">UNITS", ">L2", ">COPY", "DESCRIPTION"});
  for (const client::DeviceInfo& device : *devices) {
    table.AddRow(
        {device.name, device.kind, device.healthy ? "yes" : "no",
         HumanBytes(static_cast<double>(device.memory_bytes)), absl::StrCat(device.multiprocessors),
         HumanBytes(static_cast<double>(device.l2_bytes)),
         HumanRate(device.measured_bandwidth_bytes_per_second, "B/s"), device.description});
  }
  PrintText(table.ToString());
  return kExitOk;
}

// A probe that waits longer than this is of no use to the one who asks.
constexpr double kHealthSeconds = 5;

struct HealthOptions {
  explicit HealthOptions(const Arguments& arguments) : timeout(arguments, kHealthSeconds) {
    arguments.Add("--service", &service, "Service to check; default: the whole server");
    arguments
        .Add("--wait", &wait,
             "Keep checking until the server serves, for up to this long, in seconds or as 500ms, "
             "2m")
        .TypeName("DURATION");
  }
  TimeoutOption timeout;
  std::string service;
  std::string wait;
};

// Pause before a server that does not serve yet is asked again.
constexpr absl::Duration kHealthPause = absl::Milliseconds(100);

// True where another answer may come by itself.
bool MayServeLater(const absl::StatusOr<client::ServingStatus>& status) {
  if (status.ok()) return *status != client::ServingStatus::kServing;
  return absl::IsUnavailable(status.status()) || absl::IsDeadlineExceeded(status.status());
}

int RunHealth(const Globals& globals, const HealthOptions& options) {
  const absl::StatusOr<absl::Duration> wait = ParseTimeout(options.wait);
  if (!wait.ok()) return UsageError(wait.status());
  client::Client client(globals.server, OptionsOf(globals));
  const absl::Time end = absl::Now() + *wait;
  auto status = client.Health(options.service, options.timeout.duration());
  while (MayServeLater(status) && absl::Now() < end) {
    absl::SleepFor(kHealthPause);
    status = client.Health(options.service, options.timeout.duration());
  }
  if (!status.ok()) return Refused(status.status());
  const char* name = client::ServingStatusName(*status);
  if (globals.json) {
    PrintJson({{"status", name}});
  } else {
    PrintText(absl::StrCat(name, "\n"));
  }
  if (*status == client::ServingStatus::kServing) return kExitOk;
  return FailShown(absl::UnavailableError(absl::StrCat("the server is ", name)), kExitRefused);
}

// The client's own version is worth no longer wait.
constexpr double kVersionSeconds = 5;

std::string StartOf(const ServerDescription& server) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", server.started, absl::UTCTimeZone());
}

json ToJson(const ServerDescription& server) {
  return {{"version", server.version},
          {"revision", server.revision},
          {"grpc_version", server.grpc_version},
          {"started", StartOf(server)},
          {"changed_flags", server.changed_flags},
          {"hostname", server.hostname}};
}

std::string ToText(const ServerDescription& server, const std::string& address) {
  std::vector<std::string> parts = {
      absl::StrCat("warpcalld ", server.version,
                   server.revision.empty() ? "" : absl::StrCat(" (", server.revision, ")"), " at ",
                   address, server.hostname.empty() ? "" : absl::StrCat(" on ", server.hostname),
                   ", gRPC ", server.grpc_version, ", since ", StartOf(server))};
  for (const auto& [flag, value] : server.changed_flags)
    parts.push_back(absl::StrCat("--", flag, "=", value));
  constexpr size_t kIndent = 2;
  std::string text;
  for (const std::string& part : parts)
    absl::StrAppend(&text, Fitted(text.empty() ? "" : std::string(kIndent, ' '), part, kIndent));
  return text;
}

// A server that is older than the question says UNIMPLEMENTED. The client itself gives the codes of
// a server that does not answer.
std::string WhyNot(const absl::Status& status, const std::string& address) {
  if (absl::IsUnimplemented(status))
    return absl::StrCat("the server at ", address, " is too old to say its version");
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))
    return absl::StrCat("no server at ", address, ": ", status.message());
  return absl::StrCat("the server at ", address,
                      " refuses to say its version: ", absl::StatusCodeToString(status.code()),
                      ": ", status.message());
}

struct VersionOptions {
  explicit VersionOptions(const Arguments& arguments) : timeout(arguments, kVersionSeconds) {}
  TimeoutOption timeout;
};

int RunVersion(const Globals& globals, const VersionOptions& options) {
  client::Client client(globals.server, OptionsOf(globals));
  const auto server = client.ServerInfo(options.timeout.duration());
  if (globals.json) {
    json value = {{"client", {{"version", ClientVersion()}}}};
    if (server.ok()) {
      value["server"] = ToJson(*server);
    } else {
      value["server"] = {{"error", WhyNot(server.status(), globals.server)}};
    }
    value["server"]["address"] = globals.server;
    PrintJson(value);
    return kExitOk;
  }
  PrintText(absl::StrCat("warpcall ", ClientVersion(), "\n",
                         server.ok() ? ToText(*server, globals.server)
                                     : Fitted("", WhyNot(server.status(), globals.server), 0)));
  return kExitOk;
}

}  // namespace

Command AddKernelsCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<KernelsOptions>(
      root.AddSubcommand(
          "kernels",
          "List the kernels, their attributes and their implementations in order of preference"),
      globals, RunKernels);
}

Command AddDevicesCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<TimeoutOption>(
      root.AddSubcommand("devices", "List the devices and their health"), globals, RunDevices);
}

Command AddHealthCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<HealthOptions>(
      root.AddSubcommand("health", "Check the server's health: exit status 0 if it serves, else 1"),
      globals, RunHealth);
}

Command AddVersionCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<VersionOptions>(
      root.AddSubcommand("version",
                         "Print the version of the client and, if it answers, of the server"),
      globals, RunVersion);
}

}  // namespace warpcall::cli
