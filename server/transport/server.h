// The gRPC server around KernelService: ports, limits, health, reflection, and a shutdown that
// loses nothing.
#pragma once

#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/transport/acceptor.h"
#include "server/transport/background_thread.h"
#include "server/transport/connections.h"
#include "server/transport/failure_log.h"
#include "server/transport/grpc_1_51/pollers.h"
#include "server/transport/inflater.h"
#include "server/transport/reference_watch.h"
#include "server/transport/request.h"
#include "server/transport/send_watch.h"

namespace warpcall {

class HealthService;
class LoadReporter;
namespace oip {
class InferenceService;
}

// OK if clients should call this server; else UNAVAILABLE with the reason.
absl::Status CheckReady(const ExecuteDeps& deps);

class GrpcServer {
 public:
  // Listens on each of `addresses` ("HOST:PORT", port 0 for any; "unix:/path"), with TLS where
  // there are `credentials`. `deps` outlives the server. UNAVAILABLE names the address that could
  // not be bound, and why; it leaves a Unix socket on which another server listens alone.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const std::vector<std::string>& addresses, ExecuteDeps* deps,
      std::shared_ptr<grpc::ServerCredentials> credentials = nullptr);
  ~GrpcServer();

  // Returns the version of gRPC's library: "1.51.1".
  static std::string GrpcVersion();

  // The addresses that it listens at, with the bound ports.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Sets the answer of grpc.health.v1 for "" and for the service while CheckReady finds no fault.
  void SetServing(bool serving);

  // Waits up to `timeout` until every answer is sent, and returns true if so. Also waits, for at
  // most a second, until clients have stopped calling: until then the engine answers their calls
  // with UNAVAILABLE and its reason.
  bool AwaitQuiet(absl::Duration timeout);

  // Ends the streams that are open with `status`; returns how many there are.
  int64_t EndStreams(const absl::Status& status);

  // Cancels calls whose answers make no progress, and makes health follow CheckReady. To be called
  // often, by one thread.
  void RunPeriodicChecks();

  // Halves the memory that gRPC may use for received messages `halvings` times; gRPC ends calls
  // until the rest fits. For the same thread.
  void ShedReceived(int halvings);

  // Logs the counts of failed requests that have no lines of their own, before the log ends.
  void FlushFailures() { failures_.Flush(); }

  // Closes all connections, with the calls that are open, and accepts no new ones.
  void Shutdown();

 private:
  explicit GrpcServer(ExecuteDeps* deps);

  void AddServices();
  // `plain`: without TLS.
  Acceptor::Options ToAcceptorOptions(bool plain);
  void EndStuckSends();
  void UpdateHealth() ABSL_LOCKS_EXCLUDED(health_mutex_);

  ExecuteDeps* const deps_;
  FailureLog failures_;
  ReferenceWatch reference_watch_;
  BackgroundThread background_;
  Inflater inflater_;
  SendWatch sends_;
  const std::unique_ptr<LoadReporter> loads_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  HealthService* health_ = nullptr;  // in services_, as is inference_
  oip::InferenceService* inference_ = nullptr;
  std::vector<std::string> service_names_;  // the services that reflection lists
  std::vector<std::string> addresses_;
  // Counts the buffers that gRPC reads into until nobody refers to them.
  grpc::ResourceQuota quota_{"received messages"};
  int halvings_ = 0;
  std::atomic<bool> serving_{false};
  absl::Mutex health_mutex_;  // keeps health reports in order
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<Connections> open_connections_;  // before what accepts them
  std::unique_ptr<Acceptor> acceptor_;
  Pollers pollers_;  // destroyed before its server
};

}  // namespace warpcall
