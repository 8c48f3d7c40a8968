#include "server/config.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "server/version.h"

namespace warpcall {
namespace {

constexpr int kUsageError = 2;

// The longest message that protobuf's own parsers, and so most clients, can hold is 2 GiB - 1.
constexpr int64_t kMessageMibMax = 2047;

std::string CheckLogLevel(const std::string& name) {
  LogLevel level;
  if (ParseLogLevel(name, &level)) return "";
  return "\"" + name + "\" is unknown; known: " + std::string(LogLevelNames());
}

std::string CheckAddress(const std::string& address) {
  if (address.rfind("unix:", 0) == 0 && address.size() > 5) return "";
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  if (colon != 0 && digits && std::stoi(port) <= 65535) return "";
  return "\"" + address + "\" is not HOST:PORT with a port of 0 to 65535, nor unix:/path";
}

void AddLimits(CLI::App* app, Config* config) {
  app->add_option("--lanes_per_device", config->lanes_per_device,
                  "Jobs that a device works on at once, each with a thread and a stream")
      ->check(CLI::Range(1, 64))
      ->default_str("2, or 4 on a GPU");
  app->add_option("--staging_mib", config->staging_mib,
                  "Staging memory per device, for the inputs and outputs of running requests and "
                  "for responses not yet sent, MiB")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app->add_option("--max_message_mib", config->max_message_mib,
                  "Tensor data of the largest request or response, MiB")
      ->check(CLI::Range(int64_t{1}, kMessageMibMax));
  app->add_option("--queue_limit", config->queue_limit, "Requests that may wait for a device")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app->add_option("--queue_mib", config->queue_mib, "Input bytes that may wait for a device, MiB")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app->add_option("--queue_seconds", config->queue_seconds,
                  "Predicted work that may wait for a device, seconds of one lane")
      ->check(CLI::Range(0.001, 86400.0));
  app->add_option("--reception_mib", config->reception_mib,
                  "Memory for messages on their way in, of all connections together, MiB; at least "
                  "max_message_mib")
      ->check(CLI::Range(int64_t{64}, int64_t{1} << 20));
  app->add_option(
         "--benchmark_mib", config->benchmark_mib,
         "Memory for the tensors of one Benchmark, or of one Profile that makes its inputs, on the "
         "host and on the device each, MiB")
      ->check(CLI::Range(int64_t{1024}, int64_t{1} << 20));
  app->add_option("--lame_duck_seconds", config->lame_duck_seconds,
                  "After SIGTERM: not ready but still serving, for load balancers to notice")
      ->check(CLI::Range(0.0, 3600.0));
  app->add_option("--drain_seconds", config->drain_seconds,
                  "The longest wait for accepted requests before the process ends; what is left "
                  "then ends with UNAVAILABLE, and the process with status 3")
      ->check(CLI::Range(0.0, 3600.0));
  app->add_option("--max_run_seconds", config->max_run_seconds,
                  "For which a request may hold a lane: work that is predicted to take longer is "
                  "refused, what does so stopped")
      ->check(CLI::Range(0.1, 86400.0));
}

// Not in --help: for tests, and for the processes that a server starts.
void AddInternal(CLI::App* app, Config* config) {
  app->add_flag("--test_fault_injection", config->fault_injection,
                "Adds kernels that break their device, go wrong, or wait until they are let go")
      ->group("");
  app->add_option("--test_cpu_workers", config->cpu_workers,
                  "Serves the CPU through so many workers, as several GPUs are")
      ->check(CLI::Range(1, 8))
      ->group("");
  app->add_option("--worker_device", config->worker_device, "Be a worker process for this device")
      ->group("");
  app->add_option("--inspect", config->inspect, "Answer one benchmark, profile or describe")
      ->check(CLI::IsMember({"benchmark", "profile", "describe"}))
      ->group("");
  app->add_option("--inspect_device", config->inspect_device, "The device that it is about")
      ->group("");
  app->add_option("--inspect_traceparent", config->inspect_traceparent, "The trace it belongs to")
      ->group("");
  app->add_option("--self_test_row_seconds", config->self_test_row_seconds,
                  "When a row's trials count as hanging")
      ->check(CLI::Range(0.1, 3600.0))
      ->group("");
  app->add_option("--self_test_device", config->self_test_device, "Try rows on this device")
      ->group("");
  app->add_option("--self_test_rows", config->self_test_rows, "The rows to try")
      ->delimiter(',')
      ->group("");
  app->add_option("--unavailable_row", config->unavailable_rows, "ID:REASON: do not offer it")
      ->group("");
}

}  // namespace

bool ParseConfig(int argc, char** argv, Config* config, int* exit_code) {
  CLI::App app("Warpcall: runs kernels on this machine's devices for clients over gRPC.",
               "warpcalld");
  app.set_version_flag("--version", kVersion);
  app.option_defaults()->always_capture_default();
  std::string log_level = "info";
  app.add_option("--listen", config->listen,
                 "Addresses for gRPC, comma-separated: HOST:PORT (port 0: any free) or unix:/path")
      ->delimiter(',')
      ->check(CheckAddress);
  app.add_option("--metrics_listen", config->metrics_listen,
                 "HOST:PORT for /metrics, /healthz, /readyz and /log_level over HTTP")
      ->check(CheckAddress);
  app.add_option("--devices", config->devices,
                 "Devices to serve, comma-separated, or auto for all");
  app.add_option("--self_test", config->self_test,
                 "Which rows are tried before they are offered: quick (on small problems of each "
                 "type), full (on every case that the tests have; minutes), off (none are tried)")
      ->check(CLI::IsMember({"quick", "full", "off"}));
  app.add_option(
      "--compile_cache", config->compile_cache,
      "A folder that keeps what is compiled for GPUs at run time, for the next start and "
      "for other servers; it is made if need be");
  app.add_flag("--check", config->check,
               "Try the rows, print a table of what came of it, and end: status 0 when all that "
               "this machine can run are right, 1 otherwise");
  AddLimits(&app, config);
  AddInternal(&app, config);
  app.add_option(
         "--log_level", log_level,
         "debug, info, warning or error; changed while it runs by PUT /log_level, from this "
         "machine, on the address of --metrics_listen")
      ->check(CheckLogLevel);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error, std::cout, std::cerr) == 0 ? 0 : kUsageError;
    return false;
  }
  if (config->reception_mib < config->max_message_mib) {
    std::cerr << "--reception_mib: " << config->reception_mib
              << " is less than max_message_mib, which is " << config->max_message_mib << "\n";
    *exit_code = kUsageError;
    return false;
  }
  ParseLogLevel(log_level, &config->log_level);
  return true;
}

}  // namespace warpcall
