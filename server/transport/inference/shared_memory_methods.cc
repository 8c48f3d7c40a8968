// The InferenceService's methods about shared memory.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/transport/caller.h"
#include "server/transport/connections.h"
#include "server/transport/inference/inference_service.h"
#include "server/transport/inquiry.h"
#include "server/transport/reply.h"

namespace warpcall::oip {
namespace {

absl::Status CheckAllowed(const ExecuteDeps& deps, const grpc::CallbackServerContext& context) {
  if (!deps.limits.allow_shared_memory)
    return absl::PermissionDeniedError(
        "Client shared memory is disabled on this server (allow_shared_memory is off)");
  const std::string peer = PeerOf(deps, context.peer());
  if (IsOnThisMachine(peer)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "shared memory is for callers on this server's machine, which ", peer, " is not"));
}

// A principal with a name is its own user, by whichever connections it calls.
SharedRegions::Caller ToCaller(const ExecuteDeps& deps, const Principal& principal,
                               const grpc::CallbackServerContext& context) {
  if (!principal.name.empty())
    return {.id = principal.id, .user = absl::StrCat("principal ", principal.id)};
  const std::string peer = context.peer();
  return {.id = principal.id,
          .user = deps.parts.connections->FindSource(peer),
          .peer = PeerOf(deps, peer)};
}

}  // namespace

bool InferenceService::HasEnded(const ExecuteDeps& deps, const SharedRegions::Caller& caller) {
  if (caller.peer.empty() || caller.user.empty()) return false;
  // The regions of a Unix socket's user belong to all connections of that user.
  if (absl::StartsWith(caller.peer, "unix:"))
    return !deps.parts.connections->IsAnyOpenFrom(caller.user);
  return !deps.parts.connections->IsOpen(caller.peer);
}

void InferenceService::ForgetConnection(absl::string_view peer) {
  if (deps_->limits.allow_shared_memory) door_.regions.Unregister(ConnectionPrincipal(peer).id, "");
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryStatus(Context* context,
                                                                      const grpc::ByteBuffer* bytes,
                                                                      grpc::ByteBuffer* answer) {
  return ReplyTo<inference::SystemSharedMemoryStatusRequest,
                 inference::SystemSharedMemoryStatusResponse>(
      *deps_, {context, bytes, answer}, "SystemSharedMemoryStatus",
      [&](const Principal& owner, const inference::SystemSharedMemoryStatusRequest& request,
          inference::SystemSharedMemoryStatusResponse* response) -> absl::Status {
        std::vector<SharedRegions::NamedRegion> regions;
        ASSIGN_OR_RETURN(regions, door_.regions.Find(owner.id, request.name()));
        for (const SharedRegions::NamedRegion& region : regions) {
          auto& status = (*response->mutable_regions())[region.name];
          status.set_name(region.name);
          status.set_key(region.region.key);
          status.set_offset(region.region.offset);
          status.set_byte_size(region.region.memory->bytes());
        }
        return absl::OkStatus();
      });
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryRegister(
    Context* context, const grpc::ByteBuffer* bytes, grpc::ByteBuffer* answer) {
  return ReplyTo<inference::SystemSharedMemoryRegisterRequest,
                 inference::SystemSharedMemoryRegisterResponse>(
      *deps_, {context, bytes, answer}, "SystemSharedMemoryRegister",
      [&](const Principal& owner, const inference::SystemSharedMemoryRegisterRequest& request,
          inference::SystemSharedMemoryRegisterResponse*) -> absl::Status {
        RETURN_IF_ERROR(CheckAllowed(*deps_, *context));
        return door_.regions.Register(
            ToCaller(*deps_, owner, *context),
            {request.name(), request.key(), request.offset(), request.byte_size()});
      });
}

// Where shared memory is not allowed there are no regions, and all of them are gone.
InferenceService::Reactor* InferenceService::SystemSharedMemoryUnregister(
    Context* context, const grpc::ByteBuffer* bytes, grpc::ByteBuffer* answer) {
  return ReplyTo<inference::SystemSharedMemoryUnregisterRequest,
                 inference::SystemSharedMemoryUnregisterResponse>(
      *deps_, {context, bytes, answer}, "SystemSharedMemoryUnregister",
      [&](const Principal& owner, const inference::SystemSharedMemoryUnregisterRequest& request,
          inference::SystemSharedMemoryUnregisterResponse*) -> absl::Status {
        door_.regions.Unregister(owner.id, request.name());
        return absl::OkStatus();
      });
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryStatus(Context* context,
                                                                    const grpc::ByteBuffer* bytes,
                                                                    grpc::ByteBuffer* answer) {
  return Reply<inference::CudaSharedMemoryStatusRequest, inference::CudaSharedMemoryStatusResponse>(
      *deps_, {context, bytes, answer}, "CudaSharedMemoryStatus",
      [&](const inference::CudaSharedMemoryStatusRequest& request,
          inference::CudaSharedMemoryStatusResponse*) -> absl::Status {
        if (request.name().empty()) return absl::OkStatus();
        return absl::NotFoundError(absl::StrCat("Unable to find cuda shared memory region: '",
                                                request.name(), "': there are none"));
      });
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryRegister(Context* context,
                                                                      const grpc::ByteBuffer* bytes,
                                                                      grpc::ByteBuffer* answer) {
  return Reply<inference::CudaSharedMemoryRegisterRequest,
               inference::CudaSharedMemoryRegisterResponse>(
      *deps_, {context, bytes, answer}, "CudaSharedMemoryRegister",
      [&](const inference::CudaSharedMemoryRegisterRequest& request,
          inference::CudaSharedMemoryRegisterResponse*) -> absl::Status {
        return absl::UnimplementedError(
            absl::StrCat("cuda shared memory region '", request.name(),
                         "' is not registered: this server opens no CUDA IPC handles, which share "
                         "whole blocks of 2 MiB "
                         "with whatever else lies there; use system shared memory"));
      });
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryUnregister(
    Context* context, const grpc::ByteBuffer* bytes, grpc::ByteBuffer* answer) {
  return Reply<inference::CudaSharedMemoryUnregisterRequest,
               inference::CudaSharedMemoryUnregisterResponse>(
      *deps_, {context, bytes, answer}, "CudaSharedMemoryUnregister",
      [&](const inference::CudaSharedMemoryUnregisterRequest&,
          inference::CudaSharedMemoryUnregisterResponse*) -> absl::Status {
        return absl::OkStatus();
      });
}

}  // namespace warpcall::oip
