// warpcall health: exit status 0 when the server says SERVING, 1 in every other case, for use as a
// health check.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/common/command.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cpp/client.h"

namespace warpcall::cli {
namespace {

// A probe that waits longer than this is of no use to the one who asks.
constexpr double kHealthSeconds = 5;

struct HealthOptions {
  explicit HealthOptions(const Arguments& arguments) : timeout(arguments, kHealthSeconds) {
    arguments.Add("--service", &service, "A service of the server; empty: the server itself");
  }
  TimeoutOption timeout;
  std::string service;
};

int Run(const Globals& globals, const HealthOptions& options) {
  client::Client client(globals.server, OptionsOf(globals));
  const auto status = client.Health(options.service, options.timeout.duration());
  if (!status.ok()) return Refused(status.status());
  const char* name = client::ServingStatusName(*status);
  if (globals.json) {
    PrintJson({{"status", name}});
  } else {
    PrintText(absl::StrCat(name, "\n"));
  }
  if (*status == client::ServingStatus::kServing) return kExitOk;
  return FailTold(absl::UnavailableError(absl::StrCat("the server is ", name)), kExitRefused);
}

}  // namespace

Command AddHealthCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments =
      root.AddSubcommand("health", "Ask whether the server serves: exit status 0 or 1");
  const auto options = std::make_shared<HealthOptions>(arguments);
  return {arguments, [&globals, options] { return Run(globals, *options); }};
}

}  // namespace warpcall::cli
