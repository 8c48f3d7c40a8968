// The command line of the transport benchmark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/transport_cases.h"

namespace warpcall::bench {

struct TransportOptions {
  std::vector<uint64_t> sizes = {64,
                                 uint64_t{4} << 10,
                                 uint64_t{64} << 10,
                                 uint64_t{1} << 20,
                                 uint64_t{16} << 20,
                                 uint64_t{64} << 20,
                                 uint64_t{256} << 20};
  std::vector<int> connections = {1, 4, 8, 32};
  std::vector<Transport> transports = {Transport::kTcp, Transport::kUnix};
  std::vector<std::string> kernels = {"identity", "gelu"};
  std::vector<Contender> contenders = {};  // filled in from the names given and `kernels`
  double seconds = 2;
  int64_t in_flight_mib = 4096;
  std::string device = {};
  std::string warpcalld;
  std::vector<std::string> server_flags = {};
  std::string echo_arguments = {};  // NAME=VALUE,... for kEchoDefaults
  std::string json_path = {};
  bool benchmarks_md = false;
};

// False when the program should end with `exit_status`.
bool ParseOptions(int argc, char** argv, TransportOptions* options, int* exit_status);

}  // namespace warpcall::bench
