// The servers that the benchmark compares with: echoes, each run in a process of its own.
#pragma once

#include <string>

namespace warpcall::bench {

struct EchoOptions {
  // "echo" (ByteBuffers, with warpcalld's read chunk and way of waiting), "echo_defaults"
  // (ByteBuffers, with gRPC's own) or "protobuf" (generated code).
  std::string kind;
  std::string addresses;  // comma-separated
};

// Serves Execute until the process is ended. Prints "echo: serving on ADDRESS,..." once it serves.
[[noreturn]] void ServeEcho(const EchoOptions& options);

}  // namespace warpcall::bench
