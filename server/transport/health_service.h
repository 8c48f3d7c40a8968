// gRPC's health checking (grpc.health.v1), which is answered to everybody. gRPC's own
// implementation parses messages of any size and keeps Watch calls open while the server shuts
// down.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/transport/request.h"

namespace warpcall {

using HealthServiceBase = grpc::health::v1::Health::WithRawCallbackMethod_Check<
    grpc::health::v1::Health::WithRawCallbackMethod_Watch<grpc::health::v1::Health::Service>>;

// Thread-safe.
class HealthService final : public HealthServiceBase {
 public:
  using Context = grpc::CallbackServerContext;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  // Knows `services` and "", the whole server; none of them serves yet.
  HealthService(const ExecuteDeps* deps, const std::vector<std::string>& services);
  ~HealthService() override;

  // Sets the status of all services, and tells it to those who watch.
  void SetServing(bool serving);

  // Ends all Watch calls, and those that come later, with `status`.
  void EndWatches(const absl::Status& status);

  grpc::ServerUnaryReactor* Check(Context* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(Context* context,
                                                    const grpc::ByteBuffer* request) override;

 private:
  class WatchCall;

  // SERVICE_UNKNOWN for a service that there is not.
  Status StatusOf(const std::string& service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ExecuteDeps* const deps_;
  absl::Mutex mutex_;
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mutex_);
  std::set<WatchCall*> watches_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // not OK: Watch calls end with it
};

}  // namespace warpcall
