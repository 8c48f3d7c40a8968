#include "server/transport/inference/inference_service.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/transport/call.h"
#include "server/transport/inference/infer_stream_call.h"
#include "server/transport/inference/signature.h"
#include "server/transport/reply.h"
#include "server/transport/status.h"

namespace warpcall::oip {
namespace {

constexpr const char* kExtensions[] = {"model_repository", "model_configuration",
                                       "binary_tensor_data", "parameters", "statistics"};
constexpr char kSharedMemoryExtension[] = "system_shared_memory";

// Health is answered to everybody, as grpc.health.v1 is.
template <typename Fill>
grpc::ServerUnaryReactor* ReplyToAll(grpc::CallbackServerContext* context, Fill fill) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(fill()));
  return reactor;
}

bool AnyDeviceIsHealthy(const Engine& engine) {
  for (int i = 0; i < engine.device_count(); ++i)
    if (engine.device(i).healthy()) return true;
  return false;
}

}  // namespace

InferenceService::InferenceService(ExecuteDeps* deps)
    : deps_(deps), door_(*deps->registry, deps->clock) {}

grpc::ServerUnaryReactor* InferenceService::ModelInfer(Context* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return UnaryCall::Start(deps_, context, {request, response},
                          std::make_unique<InferCodec>(&door_, false));
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* InferenceService::ModelStreamInfer(
    Context* context) {
  return new InferStreamCall(deps_, &door_, context);
}

grpc::ServerUnaryReactor* InferenceService::ServerLive(Context* context,
                                                       const inference::ServerLiveRequest*,
                                                       inference::ServerLiveResponse* response) {
  return ReplyToAll(context, [&] {
    response->set_live(true);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::ServerReady(Context* context,
                                                        const inference::ServerReadyRequest*,
                                                        inference::ServerReadyResponse* response) {
  return ReplyToAll(context, [&] {
    response->set_ready(serving_.load() && AnyDeviceIsHealthy(*deps_->engine));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::ModelReady(Context* context,
                                                       const inference::ModelReadyRequest* request,
                                                       inference::ModelReadyResponse* response) {
  return ReplyToAll(context, [&] {
    const absl::StatusOr<size_t> model = door_.models.Find(request->name(), request->version());
    // A model that is not there is not ready; a version that is no number is a mistake.
    if (absl::IsInvalidArgument(model.status())) return model.status();
    response->set_ready(model.ok() && serving_.load() &&
                        door_.models.CheckReady(door_.models.all()[*model], *deps_->engine).ok());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::ServerMetadata(
    Context* context, const inference::ServerMetadataRequest*,
    inference::ServerMetadataResponse* response) {
  return Reply(*deps_, context, "ServerMetadata", [&] {
    response->set_name(kPlatform);
    response->set_version(deps_->facts.version);
    for (const char* const extension : kExtensions) response->add_extensions(extension);
    if (deps_->allow_shared_memory) response->add_extensions(kSharedMemoryExtension);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::ModelMetadata(
    Context* context, const inference::ModelMetadataRequest* request,
    inference::ModelMetadataResponse* response) {
  return Reply(*deps_, context, "ModelMetadata", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const size_t model, door_.models.Find(request->name(), request->version()));
    Describe(door_.models.all()[model], response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::ModelConfig(
    Context* context, const inference::ModelConfigRequest* request,
    inference::ModelConfigResponse* response) {
  return Reply(*deps_, context, "ModelConfig", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const size_t model, door_.models.Find(request->name(), request->version()));
    Describe(door_.models.all()[model], response->mutable_config());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::ModelStatistics(
    Context* context, const inference::ModelStatisticsRequest* request,
    inference::ModelStatisticsResponse* response) {
  return Reply(*deps_, context, "ModelStatistics", [&]() -> absl::Status {
    const auto tell = [&](size_t index) {
      inference::ModelStatistics* const statistics = response->add_model_stats();
      statistics->set_name(door_.models.all()[index].name);
      statistics->set_version(kModelVersion);
      door_.statistics.Tell(index, statistics);
    };
    if (!request->name().empty()) {
      ASSIGN_OR_RETURN(const size_t model, door_.models.Find(request->name(), request->version()));
      tell(model);
      return absl::OkStatus();
    }
    for (size_t i = 0; i < door_.models.all().size(); ++i)
      if (door_.statistics.IsUsed(i)) tell(i);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::RepositoryIndex(
    Context* context, const inference::RepositoryIndexRequest* request,
    inference::RepositoryIndexResponse* response) {
  return Reply(*deps_, context, "RepositoryIndex", [&] {
    for (const Model& model : door_.models.all()) {
      const absl::Status ready = door_.models.CheckReady(model, *deps_->engine);
      if (request->ready() && !ready.ok()) continue;
      inference::RepositoryIndexResponse::ModelIndex* const entry = response->add_models();
      entry->set_name(model.name);
      entry->set_version(kModelVersion);
      entry->set_state(ready.ok() ? "READY" : "UNAVAILABLE");
      entry->set_reason(std::string(ready.message()));
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::RepositoryModelLoad(
    Context* context, const inference::RepositoryModelLoadRequest* request,
    inference::RepositoryModelLoadResponse*) {
  return Reply(*deps_, context, "RepositoryModelLoad", [&] {
    return absl::UnimplementedError(absl::StrCat(
        "model '", request->model_name(), "' is not loaded: kernels are part of the server"));
  });
}

grpc::ServerUnaryReactor* InferenceService::RepositoryModelUnload(
    Context* context, const inference::RepositoryModelUnloadRequest* request,
    inference::RepositoryModelUnloadResponse*) {
  return Reply(*deps_, context, "RepositoryModelUnload", [&] {
    return absl::UnimplementedError(absl::StrCat(
        "model '", request->model_name(), "' is not unloaded: kernels are part of the server"));
  });
}

grpc::ServerUnaryReactor* InferenceService::TraceSetting(Context* context,
                                                         const inference::TraceSettingRequest*,
                                                         inference::TraceSettingResponse*) {
  return Reply(*deps_, context, "TraceSetting", [] {
    return absl::UnimplementedError(
        "there are no trace settings: Profile traces a request, and times come with every answer");
  });
}

grpc::ServerUnaryReactor* InferenceService::LogSettings(Context* context,
                                                        const inference::LogSettingsRequest*,
                                                        inference::LogSettingsResponse*) {
  return Reply(*deps_, context, "LogSettings", [] {
    return absl::UnimplementedError(
        "there are no log settings here: the server's flag log_level decides");
  });
}

}  // namespace warpcall::oip
