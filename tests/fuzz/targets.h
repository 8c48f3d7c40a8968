// Fuzz targets, one for each place where bytes come in from another process. Each takes any bytes
// and returns its finding, or "" if all is right. Equal bytes take equal courses.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace warpcall::testing {

// An encoded ExecuteRequest: split as protobuf reads it, in any fragments.
std::string FuzzRequest(absl::string_view input);
// An encoded ModelInferRequest, likewise.
std::string FuzzInferRequest(absl::string_view input);
// The messages of an ExecuteStream: refused where they must be, else with the bits of Execute.
std::string FuzzStream(absl::string_view input);
// The messages of Puts: what comes whole gets a name, and nothing else keeps memory.
std::string FuzzPut(absl::string_view input);
// A graph: refused, or with every rule kept, and the same in a worker.
std::string FuzzGraph(absl::string_view input);
// A server's answer to the client library.
std::string FuzzClientResponse(absl::string_view input);
// A .npy file.
std::string FuzzNpy(absl::string_view input);
// A file of code compiled at run time, in a folder that processes share.
std::string FuzzCubinFile(absl::string_view input);
// Messages of processes that compile users' source, its cubin and its log.
std::string FuzzCompiler(absl::string_view input);
// Messages of a worker process to the server, and of the server to a worker.
std::string FuzzWorker(absl::string_view input);
// The answer of a process that looked into something, and the request that it gets.
std::string FuzzInspectChild(absl::string_view input);
// The reports of a process that tries rows.
std::string FuzzSelfTest(absl::string_view input);
// The text of fused's expression.
std::string FuzzExpression(absl::string_view input);
// The manifest of a pushed kernel, also in source, or an expression of one.
std::string FuzzManifest(absl::string_view input);
// A file of policies (which begins with a bracket) or tokens.
std::string FuzzAccessFile(absl::string_view input);
// Requests to the operators' port.
std::string FuzzHttp(absl::string_view input);
// The header that names the caller's trace.
std::string FuzzTraceparent(absl::string_view input);
// The file of tuning results.
std::string FuzzTuning(absl::string_view input);

struct FuzzTarget {
  const char* name;  // names its program and its corpus
  std::string (*run)(absl::string_view input);
};
// All of the above.
absl::Span<const FuzzTarget> FuzzTargets();

}  // namespace warpcall::testing
