// The Open Inference Protocol's service: the same kernels, engine and limits as the
// KernelService's, for clients that speak of models.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>

#include "inference/grpc_service.grpc.pb.h"
#include "server/transport/inference/infer_codec.h"
#include "server/transport/request.h"

namespace warpcall::oip {

using Protocol = inference::GRPCInferenceService;

using SharedMemoryMethods = Protocol::WithRawCallbackMethod_SystemSharedMemoryStatus<
    Protocol::WithRawCallbackMethod_SystemSharedMemoryRegister<
        Protocol::WithRawCallbackMethod_SystemSharedMemoryUnregister<
            Protocol::WithRawCallbackMethod_CudaSharedMemoryStatus<
                Protocol::WithRawCallbackMethod_CudaSharedMemoryRegister<
                    Protocol::WithRawCallbackMethod_CudaSharedMemoryUnregister<
                        Protocol::Service>>>>>>;
using RepositoryMethods = Protocol::WithRawCallbackMethod_RepositoryModelLoad<
    Protocol::WithRawCallbackMethod_RepositoryModelUnload<
        Protocol::WithRawCallbackMethod_TraceSetting<
            Protocol::WithRawCallbackMethod_LogSettings<Protocol::WithRawCallbackMethod_ModelConfig<
                Protocol::WithRawCallbackMethod_ModelStatistics<
                    Protocol::WithRawCallbackMethod_RepositoryIndex<SharedMemoryMethods>>>>>>>;
using HealthMethods =
    Protocol::WithRawCallbackMethod_ServerLive<Protocol::WithRawCallbackMethod_ServerReady<
        Protocol::WithRawCallbackMethod_ModelReady<Protocol::WithRawCallbackMethod_ServerMetadata<
            Protocol::WithRawCallbackMethod_ModelMetadata<RepositoryMethods>>>>>;
// Every method takes raw bytes: protobuf would copy the tensors of ModelInfer and ModelStreamInfer,
// and parse any number of bytes of the others.
using InferenceServiceBase = Protocol::WithRawCallbackMethod_ModelInfer<
    Protocol::WithRawCallbackMethod_ModelStreamInfer<HealthMethods>>;

class InferenceService final : public InferenceServiceBase {
 public:
  // `deps` outlives it.
  explicit InferenceService(ExecuteDeps* deps);

  // Sets the answer of ServerReady.
  void SetServing(bool serving) { serving_.store(serving); }

  // Drops the shared memory of a connection that had the same address as a new one, which gRPC
  // names `peer`.
  void ForgetConnection(absl::string_view peer);

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* ModelInfer(Context* context, const grpc::ByteBuffer* request,
                      grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ModelStreamInfer(
      Context* context) override;

  Reactor* ServerLive(Context* context, const grpc::ByteBuffer* request,
                      grpc::ByteBuffer* response) override;
  Reactor* ServerReady(Context* context, const grpc::ByteBuffer* request,
                       grpc::ByteBuffer* response) override;
  Reactor* ModelReady(Context* context, const grpc::ByteBuffer* request,
                      grpc::ByteBuffer* response) override;
  Reactor* ServerMetadata(Context* context, const grpc::ByteBuffer* request,
                          grpc::ByteBuffer* response) override;
  Reactor* ModelMetadata(Context* context, const grpc::ByteBuffer* request,
                         grpc::ByteBuffer* response) override;
  Reactor* ModelConfig(Context* context, const grpc::ByteBuffer* request,
                       grpc::ByteBuffer* response) override;
  Reactor* ModelStatistics(Context* context, const grpc::ByteBuffer* request,
                           grpc::ByteBuffer* response) override;
  Reactor* RepositoryIndex(Context* context, const grpc::ByteBuffer* request,
                           grpc::ByteBuffer* response) override;
  Reactor* RepositoryModelLoad(Context* context, const grpc::ByteBuffer* request,
                               grpc::ByteBuffer* response) override;
  Reactor* RepositoryModelUnload(Context* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  Reactor* TraceSetting(Context* context, const grpc::ByteBuffer* request,
                        grpc::ByteBuffer* response) override;
  Reactor* LogSettings(Context* context, const grpc::ByteBuffer* request,
                       grpc::ByteBuffer* response) override;

  Reactor* SystemSharedMemoryStatus(Context* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  Reactor* SystemSharedMemoryRegister(Context* context, const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  Reactor* SystemSharedMemoryUnregister(Context* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  Reactor* CudaSharedMemoryStatus(Context* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  Reactor* CudaSharedMemoryRegister(Context* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  Reactor* CudaSharedMemoryUnregister(Context* context, const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;

 private:
  // Returns true if all connections that own the caller's shared memory have ended.
  static bool HasEnded(const ExecuteDeps& deps, const SharedRegions::Caller& caller);

  ExecuteDeps* const deps_;
  Door door_;
  std::atomic<bool> serving_{false};
};

}  // namespace warpcall::oip
