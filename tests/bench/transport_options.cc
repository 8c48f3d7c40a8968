#include "tests/bench/transport_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/bench/transport_table.h"

namespace warpcall::bench {
namespace {

constexpr int kUsageError = 2;

// What --quick and --benchmarks_md leave out, unless it is asked for by name.
const std::vector<uint64_t> kQuickSizes = {64, 4 << 10, 1 << 20, 16 << 20};
const std::vector<int> kShortConnections = {1, kBenchmarksConnections};
constexpr double kQuickSeconds = 0.4;

const std::map<std::string, Transport> kTransports = {{"tcp", Transport::kTcp},
                                                      {"unix", Transport::kUnix}};
const std::map<std::string, ContenderKind> kContenders = {
    {"echo", ContenderKind::kEcho},
    {"echo_defaults", ContenderKind::kEchoDefaults},
    {"echo_queues", ContenderKind::kEchoQueues},
    {"protobuf", ContenderKind::kProtobuf},
    {"raw", ContenderKind::kRaw},
    {"library", ContenderKind::kLibrary}};

std::string CheckFloats(const std::string& bytes) {
  const uint64_t value = std::stoull(bytes);
  if (value >= sizeof(float) && value % sizeof(float) == 0) return "";
  return absl::StrCat(bytes, " bytes are not one or more float32");
}

// The names as the command line has them, before anything is filled in.
struct Names {
  std::vector<std::string> transports = {"tcp", "unix"};
  std::vector<std::string> contenders = {"echo", "echo_defaults", "protobuf", "raw", "library"};
  std::string server_flags;
  bool quick = false;
};

void AddPoints(CLI::App* app, TransportOptions* options, Names* names) {
  app->add_option("--sizes", options->sizes, "Bytes of the tensor: 64,4KiB,1MiB")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CheckFloats);
  app->add_option("--connections", options->connections, "Connections, each a closed loop")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app->add_option("--transports", names->transports, "tcp, unix")
      ->delimiter(',')
      ->check(CLI::IsMember(kTransports));
  app->add_option("--kernels", options->kernels, "What warpcalld runs: identity, gelu")
      ->delimiter(',')
      ->check(CLI::IsMember({"identity", "gelu"}));
  app->add_option(
         "--contenders", names->contenders,
         "echo, echo_defaults, echo_queues, protobuf, raw (ByteBuffers to warpcalld), library (the "
         "client library, identity)")
      ->delimiter(',')
      ->check(CLI::IsMember(kContenders));
  app->add_option("--seconds", options->seconds, "Of each contender at each point")
      ->check(CLI::Range(0.01, 3600.0));
  app->add_option("--in_flight_mib", options->in_flight_mib,
                  "Points with more bytes of requests and responses on their way are skipped")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
}

void FillContenders(const Names& names, TransportOptions* options) {
  for (const std::string& name : names.contenders) {
    const ContenderKind kind = kContenders.at(name);
    if (kind == ContenderKind::kRaw) {
      for (const std::string& kernel : options->kernels)
        options->contenders.push_back({kind, kernel});
    } else {
      options->contenders.push_back({kind, kind == ContenderKind::kLibrary ? "identity" : ""});
    }
  }
}

// Smaller sets where the command line names none.
void Shorten(const CLI::App& app, const Names& names, TransportOptions* options) {
  if ((names.quick || options->benchmarks_md) && app.count("--connections") == 0)
    options->connections = kShortConnections;
  if (!names.quick) return;
  if (app.count("--sizes") == 0) options->sizes = kQuickSizes;
  if (app.count("--transports") == 0 && !options->benchmarks_md)
    options->transports = {Transport::kTcp};
  if (app.count("--seconds") == 0) options->seconds = kQuickSeconds;
}

}  // namespace

bool ParseOptions(int argc, char** argv, TransportOptions* options, int* exit_status) {
  CLI::App app(
      "What the data path costs against gRPC itself: echoes and warpcalld, each in a process of "
      "its own, taking turns.",
      "warpcall_transport_bench");
  app.option_defaults()->always_capture_default();
  Names names;
  AddPoints(&app, options, &names);
  app.add_option("--device", options->device, "Device of warpcalld; empty: its choice");
  app.add_option("--warpcalld", options->warpcalld, "The server's program")
      ->check(CLI::ExistingFile);
  app.add_option("--server_flags", names.server_flags,
                 "More flags for warpcalld, separated by blanks");
  app.add_option("--echo_arguments", options->echo_arguments,
                 "NAME=VALUE,...: integer channel arguments of gRPC for echo_defaults");
  app.add_option("--json", options->json_path, "Write the results to this file, too");
  app.add_flag(
      "--benchmarks_md", options->benchmarks_md,
      "Print the table of BENCHMARKS.md: one and eight connections, and a Unix socket's p50");
  app.add_flag("--quick", names.quick, "Fewer and shorter points: less than a minute");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_status = app.exit(error) == 0 ? 0 : kUsageError;
    return false;
  }
  options->transports.clear();
  for (const std::string& name : names.transports)
    options->transports.push_back(kTransports.at(name));
  Shorten(app, names, options);
  FillContenders(names, options);
  options->server_flags = absl::StrSplit(names.server_flags, ' ', absl::SkipEmpty());
  return true;
}

}  // namespace warpcall::bench
