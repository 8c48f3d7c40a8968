// The servers that the benchmark compares with: echoes, each run in a process of its own.
#pragma once

#include <string>

namespace warpcall::bench {

struct EchoOptions {
  // "echo" (ByteBuffers, with warpcalld's read chunk), "echo_defaults" (ByteBuffers, with
  // `arguments`), "echo_queues" (as "echo", on completion queues with a thread each) or "protobuf"
  // (generated code).
  std::string kind;
  std::string addresses;  // comma-separated
  std::string arguments;  // NAME=VALUE,...: gRPC's integer channel arguments
};

// Serves Execute until the process is ended. Prints "echo: serving on ADDRESS,..." once it serves.
[[noreturn]] void ServeEcho(const EchoOptions& options);

}  // namespace warpcall::bench
