#include "server/flags/config.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstring>
#include <iostream>
#include <sstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "proto/common/suggest.h"
#include "proto/common/text_lines.h"
#include "server/flags/flag_words.h"
#include "server/program/version.h"
#include "server/system/listen.h"

namespace warpcall {
namespace {

constexpr int kUsageError = 2;
constexpr size_t kHelpColumns = 100;

constexpr char kLogLevel[] = "log_level";

// Flags that Config has as numbers.
struct Names {
  std::string log_level = "info";
  std::string log_format = "logfmt";
};

// The longest message that protobuf's own parsers, and so most clients, can hold is 2 GiB - 1.
constexpr int64_t kMessageMibMax = 2047;

// CLI::Range takes NaN, which lies in no range, and says the same of what is no number.
template <typename Number>
CLI::Validator Between(Number least, Number most) {
  const CLI::Range range(least, most);
  return CLI::Validator(
      [=](std::string& text) {
        Number value = 0;
        if (!CLI::detail::lexical_cast(text, value))
          return absl::StrCat("Value ", text, " is no number; it must be ", least, " to ", most);
        if (std::isnan(static_cast<double>(value)))
          return absl::StrCat("Value ", text, " not in range ", least, " to ", most);
        return range(text);
      },
      range.get_description());
}

std::string CheckLogLevel(const std::string& name) {
  LogLevel level;
  if (ParseLogLevel(name, &level)) return "";
  const std::vector<std::string> known = absl::StrSplit(LogLevelNames(), ", ");
  return absl::StrCat("\"", name, "\" is unknown; known: ", LogLevelNames(),
                      DidYouMean(name, known));
}

std::string CheckHttpAddress(const std::string& address) {
  return std::string(ParseHostPort(address).status().message());
}

std::string CheckAddress(const std::string& address) {
  if (absl::StartsWith(address, kUnixPrefix) && address.size() > strlen(kUnixPrefix)) return "";
  const std::string error = CheckHttpAddress(address);
  return error.empty() ? "" : error + ", nor unix:/path";
}

void AddMain(CLI::App* app, Config* config) {
  app->add_flag("--check", config->check,
                "Test the implementations, print the results and exit: status 0 if all that this "
                "machine can run are correct, else 1");
  app->add_flag("--check_flags", config->check_flags,
                "Check the flags and the files that they name, print what is wrong and exit "
                "without serving: status 0 or 2");
  app->add_option("--flagfile", config->flagfile,
                  "File with one flag per line, NAME=VALUE, and # comments. Environment variables "
                  "WARPCALLD_NAME override the file; the command line overrides both");
}

void AddListening(CLI::App* app, Config* config) {
  app->add_option("--listen", config->listen,
                  "gRPC addresses to listen on, comma-separated: HOST:PORT (port 0: any free port) "
                  "or unix:/path")
      ->delimiter(',')
      ->check(CheckAddress);
  app->add_option(
         "--metrics_listen", config->metrics_listen,
         "HTTP address for the page /, /status.json, /metrics, /healthz, /readyz and /log_level, "
         "HOST:PORT")
      ->check(CheckHttpAddress);
  app->add_option("--max_connection_age_seconds", config->max_connection_age_seconds,
                  "Time after which clients are asked to reconnect, so that they discover new "
                  "servers, seconds; open calls finish on the old connection; 0: never")
      ->check(Between(0.0, 86400.0));
}

void AddDevices(CLI::App* app, Config* config) {
  app->add_option("--devices", config->devices,
                  "Devices to serve, comma-separated, or auto for all");
  app->add_option(
         "--gpus_min", config->gpus_min,
         "Number of working GPUs below which /readyz and gRPC's health service report not ready")
      ->check(Between(0, 64));
  app->add_option(
         "--self_test", config->self_test,
         "Tests that implementations must pass before they are offered: quick (small problems of "
         "each type), full (every case of the test suite; minutes) or off (none)")
      ->check(CLI::IsMember({"quick", "full", "off"}));
  app->add_option("--compile_cache", config->compile_cache,
                  "Folder to keep kernels compiled at run time in, for the next start and for "
                  "other servers; created if missing");
  app->add_option("--tuning_cache", config->tuning_cache,
                  "File to keep Tune's choice of the fastest implementations in, for the next "
                  "start; created if missing");
}

void AddLimits(CLI::App* app, Config* config) {
  app->add_option("--max_message_mib", config->max_message_mib,
                  "Largest request or response, in MiB of tensor data")
      ->check(Between(int64_t{1}, kMessageMibMax));
  app->add_option("--staging_mib", config->staging_mib,
                  "Staging memory per device, for the inputs and outputs of running requests and "
                  "for responses not yet sent, MiB")
      ->check(Between(int64_t{1}, int64_t{1} << 20));
  app->add_option("--queue_limit", config->queue_limit, "Requests that may wait for a device")
      ->check(Between(int64_t{1}, int64_t{1} << 20));
  app->add_option("--queue_mib", config->queue_mib, "Input bytes that may wait for a device, MiB")
      ->check(Between(int64_t{1}, int64_t{1} << 20));
  app->add_option("--queue_seconds", config->queue_seconds,
                  "Predicted work that may wait for a device, seconds of one lane")
      ->check(Between(0.001, 86400.0));
  app->add_option(
         "--reception_mib", config->reception_mib,
         "Memory for incoming messages of all connections together, MiB; at least max_message_mib")
      ->check(Between(int64_t{64}, int64_t{1} << 20));
  app->add_option("--max_run_seconds", config->max_run_seconds,
                  "Longest time that a request may run, seconds; a request predicted to take "
                  "longer is refused, and one that does is stopped")
      ->check(Between(0.1, 86400.0));
  app->add_option("--send_seconds", config->send_seconds,
                  "Time within which a client must read a response, seconds, plus as much again "
                  "for every 64 MiB of it; slower calls are cancelled")
      ->check(Between(0.1, 86400.0));
}

// Limits of tensors that stay on devices, and of graphs.
void AddResidentLimits(CLI::App* app, Config* config) {
  app->add_option("--resident_mib", config->resident_mib,
                  "Memory of each device for tensors that stay there between requests, MiB; "
                  "0: none may stay")
      ->check(Between(int64_t{0}, int64_t{1} << 20))
      ->default_str("1024, or a quarter of a GPU's memory");
  app->add_option("--resident_ttl_seconds", config->resident_ttl_seconds,
                  "Time for which such a tensor is kept after its last use, seconds, unless its "
                  "caller asked for another time")
      ->check(Between(0.1, 31536000.0));
  app->add_option("--resident_ttl_seconds_max", config->resident_ttl_seconds_max,
                  "Longest time to keep a tensor that a caller may ask for, seconds; at least "
                  "resident_ttl_seconds")
      ->check(Between(0.1, 31536000.0));
  app->add_option("--graph_mib", config->graph_mib,
                  "Memory of the device that each lane may use for graphs, MiB: intermediate "
                  "results, and what repeated graphs keep on a GPU")
      ->check(Between(int64_t{1}, int64_t{1} << 20));
}

void AddInspectionLimits(CLI::App* app, Config* config) {
  app->add_option("--benchmark_mib", config->benchmark_mib,
                  "Memory for the tensors of one Benchmark, or of one Profile that generates its "
                  "inputs, MiB; once on the host and once on the device")
      ->check(Between(int64_t{1024}, int64_t{1} << 20));
  app->add_option(
         "--inspect_seconds", config->inspect_seconds,
         "Longest time that a Benchmark, Tune, Profile, Describe or Push may run, seconds; "
         "a Push never takes more than 60; they run one at a time")
      ->check(Between(1.0, 86400.0));
  app->add_option("--inspect_queue", config->inspect_queue,
                  "Benchmark, Tune, Profile, Describe and Push calls that may wait, at most half "
                  "of them from one connection")
      ->check(Between(1, 1024));
  app->add_option("--push_run_seconds", config->push_run_seconds,
                  "Longest time that a launch of a pushed kernel may take, seconds")
      ->check(Between(0.1, 60.0));
}

void AddSecurity(CLI::App* app, Config* config) {
  app->add_option("--tls_cert", config->tls_cert,
                  "PEM file with the server's certificate and its intermediates; listen with TLS. "
                  "This file and the next two are reloaded when they change");
  app->add_option("--tls_key", config->tls_key, "PEM file with the private key of --tls_cert");
  app->add_option(
      "--tls_client_ca", config->tls_client_ca,
      "PEM file with certificate authorities; require a client certificate signed by one of them");
  app->add_option(
      "--token_file", config->token_file,
      "File with one \"name token\" per line; require calls to send one of the tokens as "
      "\"authorization: Bearer TOKEN\", health and reflection excepted. Reloaded when it changes");
  app->add_option("--policy_file", config->policy_file,
                  "JSON file with the policy of each principal (a certificate's subject or a "
                  "token's name): allowed methods, kernels, implementations and devices, its share "
                  "of devices, limits on calls in flight. Reloaded when it changes");
  app->add_flag("--insecure", config->insecure,
                "Allow listening where other machines can connect without TLS and without tokens");
  app->add_option("--inspect", config->inspect,
                  "Callers allowed to use Benchmark, Tune, Profile and Describe: all (on), those "
                  "on this machine (local: a loopback address or a Unix socket) or none (off)")
      ->check(CLI::IsMember({"on", "local", "off"}));
  app->add_option("--push", config->push,
                  "Judge kernels that callers push: on, off, or the devices that they may run on, "
                  "comma-separated. A caller with a name or a policy needs Push among the policy's "
                  "methods; other callers must be on this machine");
  app->add_flag("--allow_shared_memory", config->allow_shared_memory,
                "Let clients of the Open Inference Protocol on this machine register POSIX shared "
                "memory: any that this process's user may read and write");
}

void AddShutdown(CLI::App* app, Config* config) {
  app->add_option("--lame_duck_seconds", config->lame_duck_seconds,
                  "Time after SIGTERM to keep serving while reporting not ready, so that load "
                  "balancers notice, seconds")
      ->check(Between(0.0, 3600.0));
  app->add_option("--drain_seconds", config->drain_seconds,
                  "Longest wait for accepted requests before the process exits, seconds; the rest "
                  "then fail with UNAVAILABLE and the exit status is 3")
      ->check(Between(0.0, 3600.0));
}

void AddWatching(CLI::App* app, Config* config, Names* names) {
  app->add_option(
         "--log_level", names->log_level,
         "Least severe lines to log: debug, info, warning or error. Change it at run time with PUT "
         "/log_level on --metrics_listen, from this machine, or in --flagfile with SIGHUP")
      ->check(CheckLogLevel);
  app->add_option("--log_format", names->log_format,
                  "Format of log lines: key=value pairs (logfmt) or a JSON object per line (json)")
      ->check(CLI::IsMember({"logfmt", "json"}));
  app->add_option("--otlp_endpoint", config->otlp_endpoint,
                  "Address of a collector that takes OpenTelemetry spans over gRPC: HOST:PORT, "
                  "http://HOST:PORT, https://HOST:PORT or unix:PATH");
  app->add_option("--otlp_sample_ratio", config->otlp_sample_ratio,
                  "Fraction of the requests without a traceparent to trace, 0 to 1; others follow "
                  "their caller's decision")
      ->check(Between(0.0, 1.0));
  app->add_flag("--load_reports", config->load_reports,
                "Attach ORCA load reports to responses, for load balancers that read them");
}

void AddExpert(CLI::App* app, Config* config) {
  app->add_option("--lanes_per_device", config->lanes_per_device,
                  "Concurrent jobs per device, each with its own thread and stream; one more may "
                  "select an algorithm")
      ->check(Between(1, 64))
      ->default_str("2, or 4 on a GPU");
  app->add_option("--pollers", config->pollers,
                  "Number of gRPC's threads that poll while requests are small (under 256 KiB with "
                  "their responses); 0: all of them, which is half the number of cores")
      ->check(Between(0, 16))
      ->default_str("2");
  app->add_option("--busy_poll_us", config->busy_poll_us,
                  "Time to busy-poll the network after an event, us; 0: block at once")
      ->check(Between(0, 100'000))
      ->default_str("100, or 0 with fewer than 8 CPUs");
  app->add_option("--cuda_include", config->cuda_include,
                  "Folder with the CUDA toolkit's headers, which pushed kernels may include")
      ->check(CLI::ExistingDirectory)
      ->default_str("the build's toolkit, if present");
}

void AddTests(CLI::App* app, TestFlags* tests) {
  app->add_flag("--test_fault_injection", tests->fault_injection,
                "Add kernels that break their device, fail or wait until released");
  app->add_option("--test_cpu_workers", tests->cpu_workers,
                  "Serve the CPU through this many workers, as several GPUs are")
      ->check(Between(1, 8));
  app->add_option("--self_test_row_seconds", tests->self_test_row_seconds,
                  "Time after which an implementation's tests count as hanging, seconds")
      ->check(Between(0.1, 3600.0));
}

bool SameValue(const std::string& a, const std::string& b) {
  double number_a, number_b;
  return a == b ||
         (absl::SimpleAtod(a, &number_a) && absl::SimpleAtod(b, &number_b) && number_a == number_b);
}

// REQUIRES: all flags name files of secrets rather than hold them, so that each may be shown.
std::map<std::string, std::string> ChangedFlags(const CLI::App& app) {
  std::map<std::string, std::string> changed;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    const std::string value = absl::StrJoin(option->results(), ",");
    // CLI11 shows the default of a list in brackets.
    const std::string initial = option->get_default_str();
    const bool is_list = absl::StartsWith(initial, "[") && absl::EndsWith(initial, "]");
    if (FindPublic(app, name) != nullptr &&
        !SameValue(value, is_list ? initial.substr(1, initial.size() - 2) : initial))
      changed[name] = value;
  }
  return changed;
}

// Checks the rules that involve several flags.
absl::Status CheckTogether(const Config& config) {
  if (config.tls_cert.empty() != config.tls_key.empty())
    return absl::InvalidArgumentError("--tls_cert and --tls_key: one of them is not given");
  if (config.tls_cert.empty() && !config.tls_client_ca.empty())
    return absl::InvalidArgumentError(
        "--tls_client_ca: clients show certificates where there is TLS: --tls_cert is not given");
  if (config.reception_mib < config.max_message_mib)
    return absl::InvalidArgumentError(absl::StrCat("--reception_mib: ", config.reception_mib,
                                                   " is less than max_message_mib, which is ",
                                                   config.max_message_mib));
  if (config.staging_mib < config.max_message_mib)
    return absl::InvalidArgumentError(
        absl::StrCat("--staging_mib: ", config.staging_mib,
                     " has no room for one message: max_message_mib is ", config.max_message_mib));
  if (config.resident_ttl_seconds_max < config.resident_ttl_seconds)
    return absl::InvalidArgumentError(
        absl::StrCat("--resident_ttl_seconds_max: ", config.resident_ttl_seconds_max,
                     " is less than resident_ttl_seconds, which is ", config.resident_ttl_seconds));
  return absl::OkStatus();
}

void AddAll(CLI::App* app, Config* config, Names* names) {
  app->set_version_flag("--version", kVersion);
  app->option_defaults()->always_capture_default();
  const auto begin_group = [app](const char* name) { app->option_defaults()->group(name); };
  AddMain(app, config);
  begin_group("Listening");
  AddListening(app, config);
  begin_group("Devices");
  AddDevices(app, config);
  begin_group("Limits");
  AddLimits(app, config);
  AddResidentLimits(app, config);
  AddInspectionLimits(app, config);
  begin_group("Security");
  AddSecurity(app, config);
  begin_group("Shutdown");
  AddShutdown(app, config);
  begin_group("Watching");
  AddWatching(app, config, names);
  begin_group("Expert");
  AddExpert(app, config);
  begin_group("");  // not in --help
  AddTests(app, &config->tests);
}

// Fills `config` from `words` of the command line, the environment and the flag file. `help` gets
// the text of --help or --version.
absl::Status Parse(const std::vector<std::string>& words, Config* config, std::string* help) {
  CLI::App app("Warpcall: runs kernels on this machine's devices for clients over gRPC.",
               "warpcalld");
  Names names;
  AddAll(&app, config, &names);
  FlagWords sources(app, words);
  // Errors are in the format that is asked for, whatever else is wrong.
  const absl::Cleanup set_format = [&] {
    ParseLogFormat(sources.ValueOf("log_format"), &config->log_format);
  };
  config->words = words;
  RETURN_IF_ERROR(sources.AddCommandLine());
  RETURN_IF_ERROR(sources.AddEnvironment(config));
  config->log_level_is_fixed = sources.Given(kLogLevel);
  RETURN_IF_ERROR(sources.AddFile(config));
  try {
    std::vector<std::string> reversed = sources.Reversed();
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    std::ostringstream text;
    if (app.exit(error, text, text) != 0)
      return absl::InvalidArgumentError(absl::StrCat(error.what(), sources.WhereIn(error.what())));
    // One empty line between groups.
    *help = FitHelp(absl::StrReplaceAll(text.str(), {{"\n\n\n", "\n\n"}}), kHelpColumns);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckTogether(*config));
  ParseLogLevel(names.log_level, &config->log_level);
  config->changed_flags = ChangedFlags(app);
  return absl::OkStatus();
}

}  // namespace

bool ParseConfig(int argc, char** argv, Config* config, int* exit_code) {
  std::string help;
  const absl::Status parsed = Parse({argv + 1, argv + argc}, config, &help);
  SetLogFormat(config->log_format);
  if (!parsed.ok() && config->log_format == LogFormat::kJson)
    LogAlways(LogLevel::kError, parsed.message());
  else if (!parsed.ok())
    std::cerr << parsed.message() << "\n";
  std::cout << help;
  *exit_code = parsed.ok() ? 0 : kUsageError;
  return parsed.ok() && help.empty();
}

absl::StatusOr<std::string> ReadFlagFileAgain(const Config& config, const ConfigCheck& check) {
  WARPCALL_DCHECK(!config.flagfile.empty());
  Config now;
  std::string help;
  RETURN_IF_ERROR(Parse(config.words, &now, &help));
  RETURN_IF_ERROR(check(now));
  std::vector<std::string> waiting;
  for (const auto& [name, value] : now.file_flags)
    if (const auto at_start = config.file_flags.find(name);
        name != kLogLevel && (at_start == config.file_flags.end() || at_start->second != value))
      waiting.push_back(name);
  for (const auto& [name, value] : config.file_flags)
    if (name != kLogLevel && now.file_flags.count(name) == 0) waiting.push_back(name);
  const std::string rest = waiting.empty() ? ""
                                           : absl::StrCat("; changed, but read at start only: ",
                                                          absl::StrJoin(waiting, ", "));
  if (config.log_level_is_fixed)
    return absl::StrCat("log_level stays ", LogLevelName(CurrentLogLevel()),
                        ", as the command line or the environment has it", rest);
  const LogLevel before = CurrentLogLevel();
  SetLogLevel(now.log_level);
  return absl::StrCat("log_level is ", LogLevelName(now.log_level), ", was ", LogLevelName(before),
                      rest);
}

}  // namespace warpcall
