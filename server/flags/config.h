// The server's flags, checked.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/log/log.h"

namespace warpcall {

// Unit of the flags whose names end in _mib, in bytes.
inline constexpr int64_t kMib = int64_t{1} << 20;

// Flags of a server under test, which --help does not show.
struct TestFlags {
  bool fault_injection = false;  // adds kernels that go wrong
  int cpu_workers = 0;           // 0: none; see DeviceOptions
  double self_test_row_seconds = 10;
};

struct Config {
  std::vector<std::string> listen = {"127.0.0.1:8470"};
  std::string metrics_listen = "127.0.0.1:9470";
  std::string devices = "auto";
  int gpus_min = 0;          // with fewer that work the server is not ready
  int lanes_per_device = 0;  // 0: not given
  int busy_poll_us = -1;     // less than 0: not given
  int pollers = -1;          // less than 0: not given; 0: all that gRPC has
  int64_t staging_mib = 2048;
  int64_t max_message_mib = 512;
  int64_t queue_limit = 1024;
  int64_t queue_mib = 2048;
  double queue_seconds = 60;
  int64_t reception_mib = 2048;
  int64_t benchmark_mib = 8192;
  int64_t resident_mib = -1;  // less than 0: not given
  int64_t graph_mib = 256;
  double resident_ttl_seconds = 600;
  double resident_ttl_seconds_max = 86400;
  double lame_duck_seconds = 5;
  double drain_seconds = 30;
  double max_run_seconds = 60;
  double send_seconds = 30;
  double max_connection_age_seconds = 0;  // 0: connections have no age
  std::string self_test = "quick";        // "off", "full"
  bool check = false;                     // try the rows, print what came of it, and end
  bool check_flags = false;               // check flags and files, print what is wrong, and end
  std::string inspect = "on";             // "local", "off"
  double inspect_seconds = 600;
  int inspect_queue = 8;
  std::string push = "on";  // "off", or the devices that pushes may use
  double push_run_seconds = 2;
  std::string compile_cache;  // empty: what is compiled at run time is not kept
  std::string cuda_include;   // empty: the build's, see CudaInclude
  std::string tuning_cache;   // empty: what is measured is not kept
  bool allow_shared_memory = false;
  std::string tls_cert;  // empty: no TLS
  std::string tls_key;
  std::string tls_client_ca;  // empty: clients need no certificate
  std::string token_file;     // empty: they need no token
  std::string policy_file;    // empty: they may do everything
  bool insecure = false;      // other machines may call without TLS and tokens
  std::string otlp_endpoint;  // empty: nothing is traced
  double otlp_sample_ratio = 1;
  bool load_reports = false;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kLogfmt;
  TestFlags tests;

  std::vector<std::string> words;                 // the command line, without the program
  std::string flagfile;                           // empty: none
  std::map<std::string, std::string> file_flags;  // flags of the file, by name
  bool log_level_is_fixed =
      false;  // set by the command line or the environment; the flag file can't change it
  // Flags whose values differ from their defaults, from any source, except internal flags.
  std::map<std::string, std::string> changed_flags;
  std::vector<std::string> warnings;  // to be logged once the log is set up
};

// Fills `config`. Returns false when the process should end at once with `*exit_code`: after --help
// or --version (0), or a flag that is unknown or out of range (2), which stderr names with its
// limits. A flag of the command line comes before one of the environment (WARPCALLD_NAME), and that
// before one of --flagfile.
bool ParseConfig(int argc, char** argv, Config* config, int* exit_code);

// Returns what keeps a server from starting with a Config whose flags are valid.
using ConfigCheck = std::function<absl::Status(const Config&)>;

// Reads --flagfile again, while serving, and sets the log level that it gives, unless that is
// fixed. The file must pass what a start checks: its names and values, with those of the command
// line and the environment, and `check`. Returns a sentence on the result, and which flags wait for
// the next start; on an error everything stays as it was. REQUIRES: there is a flag file.
absl::StatusOr<std::string> ReadFlagFileAgain(const Config& config, const ConfigCheck& check);

}  // namespace warpcall
