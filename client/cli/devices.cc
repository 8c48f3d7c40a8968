// warpcall devices: what the server computes on.
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/common/command.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/table.h"
#include "client/cpp/client.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

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

int Run(const Globals& globals, const TimeoutOption& timeout) {
  client::Client client(globals.server, OptionsOf(globals));
  const auto devices = client.ListDevices(timeout.duration());
  if (!devices.ok()) return Refused(devices.status());
  if (globals.json) {
    json list = json::array();
    for (const client::DeviceInfo& device : *devices) list.push_back(ToJson(device));
    PrintJson({{"devices", std::move(list)}});
    return kExitOk;
  }
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"DEVICE"},
               {"KIND"},
               {"HEALTHY"},
               {"MEMORY", kRight},
               {"UNITS", kRight},
               {"L2", kRight},
               {"COPY", kRight},
               {"DESCRIPTION"}});
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

}  // namespace

Command AddDevicesCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments = root.AddSubcommand("devices", "List the devices and their health");
  const auto timeout = std::make_shared<TimeoutOption>(arguments);
  return {arguments, [&globals, timeout] { return Run(globals, *timeout); }};
}

}  // namespace warpcall::cli
