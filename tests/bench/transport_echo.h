// The servers that the benchmark compares with: echoes, each run in a process of its own.
#pragma once

#include <string>

namespace warpcall::bench {

// Serves Execute on `addresses` (comma-separated) until the process is ended, which its parent's
// end does too. `kind`: "raw" (ByteBuffers, with warpcalld's read chunk), "defaults" (ByteBuffers)
// or "protobuf" (generated code). Prints "echo: serving on ADDRESS,..." once it serves.
[[noreturn]] void ServeEcho(const std::string& kind, const std::string& addresses);

}  // namespace warpcall::bench
