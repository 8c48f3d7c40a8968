// The objects that all calls use, and counts of open calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/registry.h"
#include "server/access/gate.h"
#include "server/engine/engine.h"
#include "server/engine/metrics_sink.h"
#include "server/engine/tuning_cache.h"
#include "server/inspect/inspector.h"
#include "server/tracing/tracer.h"
#include "server/transport/open_streams.h"
#include "server/transport/recent_graphs.h"

namespace warpcall {

class BackgroundThread;
class Connections;
class FailureLog;
class Inflater;
class LoadReporter;
class Pollers;
class ReferenceWatch;
class SendWatch;

// The facts that ServerInfo returns, besides gRPC's version.
struct ServerFacts {
  std::string version;
  std::string revision;  // empty: not known
  int64_t started_unix_ns = 0;
  std::map<std::string, std::string> changed_flags;
  std::string hostname;
};

// Callers that may use Benchmark, Tune, Profile and Describe.
enum class InspectAccess : uint8_t { kOff, kLocal, kOn };

// Says who may push: callers with a name or a policy if the policy names Push, others if they are
// on this machine.
struct PushAccess {
  bool on = true;
  std::vector<std::string> devices = {};  // empty: all
};

// Set by flags.
struct CallLimits {
  int64_t message_bytes_max = 0;
  int64_t benchmark_bytes_max = 0;  // operands of one Benchmark
  InspectAccess inspect_access = InspectAccess::kOn;
  PushAccess push = {};
  // Operands of one window of an ExecuteStream: large enough that its job's fixed costs vanish
  // beside its transfer, small enough that results start early and a stream holds little.
  int64_t stream_window_bytes = 16 << 20;
  // Most bytes from clients that gRPC may hold, in incomplete messages and in those that wait.
  int64_t received_bytes_max = int64_t{4} << 30;
  int64_t memory_mib = int64_t{1} << 20;              // the sum that all flags allow
  int64_t graph_bytes_max = int64_t{256} << 20;       // intermediate results of a graph
  int gpus_min = 0;                                   // see CheckReady
  int64_t send_ns_max = int64_t{30} * 1'000'000'000;  // see SendWatch
  int max_connection_age_ms = 0;                      // 0: connections have no age
  bool allow_shared_memory = false;  // memory of this host, with inference protocol clients
  bool report_load = false;          // to balancers, with each answer
  int pollers_few = 0;               // for small requests; 0: all of gRPC's threads poll
};

// Parts that GrpcServer owns and sets while it serves; null in tests.
struct ServerParts {
  BackgroundThread* background = nullptr;
  Inflater* inflater = nullptr;
  Connections* connections = nullptr;         // null: none is known
  LoadReporter* loads = nullptr;              // null: balancers get no reports
  Pollers* pollers = nullptr;                 // null: all of gRPC's threads poll
  SendWatch* sends = nullptr;                 // null: clients may take their time to read answers
  FailureLog* failures = nullptr;             // null: each failure has its line
  ReferenceWatch* reference_watch = nullptr;  // null: the log says nothing of it
};

struct OpenCalls {
  std::atomic<bool> accepting{true};  // new connections
  std::atomic<uint64_t> next_id{1};
  std::atomic<int64_t> open{0};  // calls that have begun and are not yet answered
  OpenStreams streams{};
};

// Outlives the calls.
struct ExecuteDeps {
  const Registry* registry = nullptr;
  Engine* engine = nullptr;
  MetricsSink* metrics = nullptr;
  Clock clock = nullptr;
  inspect::Inspector* inspector = nullptr;
  TuningCache* tuning = nullptr;      // null: nothing is learned
  Gate* gate = nullptr;               // null: all may call; each connection is a principal
  tracing::Tracer* tracer = nullptr;  // null: nothing is traced
  ServerFacts facts = {};
  CallLimits limits = {};
  ServerParts parts = {};
  OpenCalls calls = {};
  RecentGraphs graphs = {};
};

}  // namespace warpcall
