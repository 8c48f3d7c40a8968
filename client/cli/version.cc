// warpcall version: which client this is, and which server it speaks to.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/common/command.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/screen.h"
#include "client/cpp/client.h"

namespace warpcall::cli {
namespace {

using client::ServerDescription;
using nlohmann::json;

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

int Run(const Globals& globals, const TimeoutOption& timeout, const std::string& version) {
  client::Client client(globals.server, OptionsOf(globals));
  const auto server = client.ServerInfo(timeout.duration());
  if (globals.json) {
    json value = {{"client", {{"version", version}}}};
    if (server.ok()) {
      value["server"] = ToJson(*server);
    } else {
      value["server"] = {{"error", WhyNot(server.status(), globals.server)}};
    }
    value["server"]["address"] = globals.server;
    PrintJson(value);
    return kExitOk;
  }
  PrintText(absl::StrCat("warpcall ", version, "\n",
                         server.ok() ? ToText(*server, globals.server)
                                     : Fitted("", WhyNot(server.status(), globals.server), 0)));
  return kExitOk;
}

}  // namespace

Command AddVersionCommand(const Arguments& root, const Globals& globals, const char* version) {
  const Arguments arguments =
      root.AddSubcommand("version", "Say the client's version, and the server's where one answers");
  const auto timeout = std::make_shared<TimeoutOption>(arguments, kVersionSeconds);
  return {arguments, [&globals, timeout, version = std::string(version)] {
            return Run(globals, *timeout, version);
          }};
}

}  // namespace warpcall::cli
