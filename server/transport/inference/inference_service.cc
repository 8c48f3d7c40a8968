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

bool AnyDeviceIsHealthy(const Engine& engine) {
  for (int i = 0; i < engine.device_count(); ++i)
    if (engine.device(i).healthy()) return true;
  return false;
}

}  // namespace

InferenceService::InferenceService(ExecuteDeps* deps)
    : deps_(deps), door_(*deps->registry, deps->clock, [deps](const SharedRegions::Caller& caller) {
        return HasEnded(*deps, caller);
      }) {}

grpc::ServerUnaryReactor* InferenceService::ModelInfer(Context* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return UnaryCall::Start(deps_, {context, request, response},
                          std::make_unique<InferCodec>(&door_, false));
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* InferenceService::ModelStreamInfer(
    Context* context) {
  return new InferStreamCall(deps_, &door_, context);
}

InferenceService::Reactor* InferenceService::ServerLive(Context* context,
                                                        const grpc::ByteBuffer* bytes,
                                                        grpc::ByteBuffer* answer) {
  return ReplyToAll<inference::ServerLiveRequest, inference::ServerLiveResponse>(
      *deps_, {context, bytes, answer},
      [&](const inference::ServerLiveRequest&,
          inference::ServerLiveResponse* response) -> absl::Status {
        response->set_live(true);
        return absl::OkStatus();
      });
}

InferenceService::Reactor* InferenceService::ServerReady(Context* context,
                                                         const grpc::ByteBuffer* bytes,
                                                         grpc::ByteBuffer* answer) {
  return ReplyToAll<inference::ServerReadyRequest, inference::ServerReadyResponse>(
      *deps_, {context, bytes, answer},
      [&](const inference::ServerReadyRequest&,
          inference::ServerReadyResponse* response) -> absl::Status {
        response->set_ready(serving_.load() && AnyDeviceIsHealthy(*deps_->engine));
        return absl::OkStatus();
      });
}

InferenceService::Reactor* InferenceService::ModelReady(Context* context,
                                                        const grpc::ByteBuffer* bytes,
                                                        grpc::ByteBuffer* answer) {
  return ReplyToAll<inference::ModelReadyRequest, inference::ModelReadyResponse>(
      *deps_, {context, bytes, answer},
      [&](const inference::ModelReadyRequest& request,
          inference::ModelReadyResponse* response) -> absl::Status {
        const absl::StatusOr<size_t> model = door_.models.Find(request.name(), request.version());
        // A model that is not there is not ready; a version that is no number is a mistake.
        if (absl::IsInvalidArgument(model.status())) return model.status();
        response->set_ready(
            model.ok() && serving_.load() &&
            door_.models.CheckReady(door_.models.all()[*model], *deps_->engine).ok());
        return absl::OkStatus();
      });
}

InferenceService::Reactor* InferenceService::ServerMetadata(Context* context,
                                                            const grpc::ByteBuffer* bytes,
                                                            grpc::ByteBuffer* answer) {
  return Reply<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      *deps_, {context, bytes, answer}, "ServerMetadata",
      [&](const inference::ServerMetadataRequest&,
          inference::ServerMetadataResponse* response) -> absl::Status {
        response->set_name(kPlatform);
        response->set_version(deps_->facts.version);
        for (const char* const extension : kExtensions) response->add_extensions(extension);
        if (deps_->limits.allow_shared_memory) response->add_extensions(kSharedMemoryExtension);
        return absl::OkStatus();
      });
}

InferenceService::Reactor* InferenceService::ModelMetadata(Context* context,
                                                           const grpc::ByteBuffer* bytes,
                                                           grpc::ByteBuffer* answer) {
  return Reply<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
      *deps_, {context, bytes, answer}, "ModelMetadata",
      [&](const inference::ModelMetadataRequest& request,
          inference::ModelMetadataResponse* response) -> absl::Status {
        ASSIGN_OR_RETURN(const size_t model, door_.models.Find(request.name(), request.version()));
        Describe(door_.models.all()[model], response);
        return absl::OkStatus();
      });
}

InferenceService::Reactor* InferenceService::ModelConfig(Context* context,
                                                         const grpc::ByteBuffer* bytes,
                                                         grpc::ByteBuffer* answer) {
  return Reply<inference::ModelConfigRequest, inference::ModelConfigResponse>(
      *deps_, {context, bytes, answer}, "ModelConfig",
      [&](const inference::ModelConfigRequest& request,
          inference::ModelConfigResponse* response) -> absl::Status {
        ASSIGN_OR_RETURN(const size_t model, door_.models.Find(request.name(), request.version()));
        Describe(door_.models.all()[model], response->mutable_config());
        return absl::OkStatus();
      });
}

InferenceService::Reactor* InferenceService::ModelStatistics(Context* context,
                                                             const grpc::ByteBuffer* bytes,
                                                             grpc::ByteBuffer* answer) {
  return Reply<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      *deps_, {context, bytes, answer}, "ModelStatistics",
      [&](const inference::ModelStatisticsRequest& request,
          inference::ModelStatisticsResponse* response) -> absl::Status {
        const auto tell = [&](size_t index) {
          inference::ModelStatistics* const statistics = response->add_model_stats();
          statistics->set_name(door_.models.all()[index].name);
          statistics->set_version(kModelVersion);
          door_.statistics.WriteTo(index, statistics);
        };
        if (!request.name().empty()) {
          ASSIGN_OR_RETURN(const size_t model,
                           door_.models.Find(request.name(), request.version()));
          tell(model);
          return absl::OkStatus();
        }
        for (size_t i = 0; i < door_.models.all().size(); ++i)
          if (door_.statistics.IsUsed(i)) tell(i);
        return absl::OkStatus();
      });
}

InferenceService::Reactor* InferenceService::RepositoryIndex(Context* context,
                                                             const grpc::ByteBuffer* bytes,
                                                             grpc::ByteBuffer* answer) {
  return Reply<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      *deps_, {context, bytes, answer}, "RepositoryIndex",
      [&](const inference::RepositoryIndexRequest& request,
          inference::RepositoryIndexResponse* response) -> absl::Status {
        for (const Model& model : door_.models.all()) {
          const absl::Status ready = door_.models.CheckReady(model, *deps_->engine);
          if (request.ready() && !ready.ok()) continue;
          inference::RepositoryIndexResponse::ModelIndex* const entry = response->add_models();
          entry->set_name(model.name);
          entry->set_version(kModelVersion);
          entry->set_state(ready.ok() ? "READY" : "UNAVAILABLE");
          entry->set_reason(std::string(ready.message()));
        }
        return absl::OkStatus();
      });
}

InferenceService::Reactor* InferenceService::RepositoryModelLoad(Context* context,
                                                                 const grpc::ByteBuffer* bytes,
                                                                 grpc::ByteBuffer* answer) {
  return Reply<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>(
      *deps_, {context, bytes, answer}, "RepositoryModelLoad",
      [&](const inference::RepositoryModelLoadRequest& request,
          inference::RepositoryModelLoadResponse*) -> absl::Status {
        return absl::UnimplementedError(absl::StrCat(
            "model '", request.model_name(), "' is not loaded: kernels are part of the server"));
      });
}

InferenceService::Reactor* InferenceService::RepositoryModelUnload(Context* context,
                                                                   const grpc::ByteBuffer* bytes,
                                                                   grpc::ByteBuffer* answer) {
  return Reply<inference::RepositoryModelUnloadRequest, inference::RepositoryModelUnloadResponse>(
      *deps_, {context, bytes, answer}, "RepositoryModelUnload",
      [&](const inference::RepositoryModelUnloadRequest& request,
          inference::RepositoryModelUnloadResponse*) -> absl::Status {
        return absl::UnimplementedError(absl::StrCat(
            "model '", request.model_name(), "' is not unloaded: kernels are part of the server"));
      });
}

InferenceService::Reactor* InferenceService::TraceSetting(Context* context,
                                                          const grpc::ByteBuffer* bytes,
                                                          grpc::ByteBuffer* answer) {
  return Reply<inference::TraceSettingRequest, inference::TraceSettingResponse>(
      *deps_, {context, bytes, answer}, "TraceSetting",
      [&](const inference::TraceSettingRequest&, inference::TraceSettingResponse*) -> absl::Status {
        return absl::UnimplementedError(
            "there are no trace settings: Profile traces a request, and times come with every "
            "answer");
      });
}

InferenceService::Reactor* InferenceService::LogSettings(Context* context,
                                                         const grpc::ByteBuffer* bytes,
                                                         grpc::ByteBuffer* answer) {
  return Reply<inference::LogSettingsRequest, inference::LogSettingsResponse>(
      *deps_, {context, bytes, answer}, "LogSettings",
      [&](const inference::LogSettingsRequest&, inference::LogSettingsResponse*) -> absl::Status {
        return absl::UnimplementedError(
            "there are no log settings here: the server's flag log_level decides");
      });
}

}  // namespace warpcall::oip
