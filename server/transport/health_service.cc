#include "server/transport/health_service.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/transport/grpc_1_51/handover.h"
#include "server/transport/reply.h"
#include "server/transport/watched_reactors.h"

namespace warpcall {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// Owned by gRPC: deletes itself when the call is over. At most one write is under way; a status
// that changes meanwhile is sent behind it, or not at all where it has changed back.
class HealthService::WatchCall final : public WatchedWriter {
 public:
  WatchCall(HealthService* service, grpc::CallbackServerContext* context)
      : WatchedWriter(*service->deps_, context), service_(service), context_(context) {}

  void Begin(grpc::ByteBuffer* message) {
    HealthCheckRequest request;
    const absl::Status status = ParseSmallMessage(*service_->deps_, message, &request);
    absl::MutexLock lock(&service_->mutex_);
    service_name_ = request.service();
    service_->watches_.insert(this);
    if (!status.ok())
      End(status);
    else
      Advance();
    handover_.Give();
  }

  // Sends the service's status, unless the client has it.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mutex_) {
    if (finished_ || writing_) return;
    if (!service_->end_.ok()) return End(service_->end_);
    const Status status = service_->StatusOf(service_name_);
    if (sent_ == status) return;
    sent_ = status;
    HealthCheckResponse response;
    response.set_status(status);
    message_ = ToByteBuffer(response);
    writing_ = true;
    StartWrite(&message_);
  }

  // As Advance, but called by the service under its mutex.
  void Send() {
    service_->mutex_.AssertHeld();
    Advance();
  }

  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mutex_) {
    if (std::exchange(finished_, true)) return;
    Finish(EndOf(status, context_));
  }

  void OnWritten(bool ok) override {
    handover_.Take();
    absl::MutexLock lock(&service_->mutex_);
    writing_ = false;
    if (ok)
      Advance();
    else
      End(absl::CancelledError("the client went away"));
  }

  void OnCancel() override {
    handover_.Take();
    absl::MutexLock lock(&service_->mutex_);
    End(absl::CancelledError("the client went away"));
  }

  void OnOver() override {
    handover_.Take();
    {
      absl::MutexLock lock(&service_->mutex_);
      service_->watches_.erase(this);
    }
    delete this;
  }

 private:
  HealthService* const service_;
  grpc::CallbackServerContext* const context_;
  Handover handover_;
  // Guarded by the service's mutex.
  std::string service_name_;
  std::optional<Status> sent_;
  grpc::ByteBuffer message_;
  bool writing_ = false;
  bool finished_ = false;
};

HealthService::HealthService(const ExecuteDeps* deps, const std::vector<std::string>& services)
    : deps_(deps) {
  serving_[""] = false;
  for (const std::string& service : services) serving_[service] = false;
}

HealthService::~HealthService() = default;

HealthService::Status HealthService::StatusOf(const std::string& service) const {
  const auto found = serving_.find(service);
  if (found == serving_.end()) return HealthCheckResponse::SERVICE_UNKNOWN;
  return found->second ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthService::SetServing(bool serving) {
  absl::MutexLock lock(&mutex_);
  for (auto& [service, service_serves] : serving_) service_serves = serving;
  for (WatchCall* const watch : watches_) watch->Send();
}

void HealthService::EndWatches(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  end_ = status;
  for (WatchCall* const watch : watches_) watch->Send();
}

grpc::ServerUnaryReactor* HealthService::Check(Context* context, const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  return ReplyToAll<HealthCheckRequest, HealthCheckResponse>(
      *deps_, {context, request, response},
      [&](const HealthCheckRequest& question, HealthCheckResponse* answer) -> absl::Status {
        absl::MutexLock lock(&mutex_);
        const Status status = StatusOf(question.service());
        if (status == HealthCheckResponse::SERVICE_UNKNOWN)
          return absl::NotFoundError(absl::StrCat("unknown service '", question.service(), "'"));
        answer->set_status(status);
        return absl::OkStatus();
      });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* HealthService::Watch(Context* context,
                                                                 const grpc::ByteBuffer* request) {
  auto* const watch = new WatchCall(this, context);
  watch->Begin(const_cast<grpc::ByteBuffer*>(request));
  return watch;
}

}  // namespace warpcall
