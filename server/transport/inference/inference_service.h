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

// Small messages, which generated code reads.
using SharedMemoryMethods = Protocol::WithCallbackMethod_SystemSharedMemoryStatus<
    Protocol::WithCallbackMethod_SystemSharedMemoryRegister<
        Protocol::WithCallbackMethod_SystemSharedMemoryUnregister<
            Protocol::WithCallbackMethod_CudaSharedMemoryStatus<
                Protocol::WithCallbackMethod_CudaSharedMemoryRegister<
                    Protocol::WithCallbackMethod_CudaSharedMemoryUnregister<Protocol::Service>>>>>>;
using RepositoryMethods = Protocol::WithCallbackMethod_RepositoryModelLoad<
    Protocol::WithCallbackMethod_RepositoryModelUnload<
        Protocol::WithCallbackMethod_TraceSetting<Protocol::WithCallbackMethod_LogSettings<
            Protocol::WithCallbackMethod_ModelConfig<Protocol::WithCallbackMethod_ModelStatistics<
                Protocol::WithCallbackMethod_RepositoryIndex<SharedMemoryMethods>>>>>>>;
using HealthMethods =
    Protocol::WithCallbackMethod_ServerLive<Protocol::WithCallbackMethod_ServerReady<
        Protocol::WithCallbackMethod_ModelReady<Protocol::WithCallbackMethod_ServerMetadata<
            Protocol::WithCallbackMethod_ModelMetadata<RepositoryMethods>>>>>;
// ModelInfer and ModelStreamInfer take raw bytes, so that protobuf never copies a tensor.
using InferenceServiceBase = Protocol::WithRawCallbackMethod_ModelInfer<
    Protocol::WithRawCallbackMethod_ModelStreamInfer<HealthMethods>>;

class InferenceService final : public InferenceServiceBase {
 public:
  // `deps` outlives it.
  explicit InferenceService(ExecuteDeps* deps);

  // What ServerReady answers.
  void SetServing(bool serving) { serving_.store(serving); }

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* ModelInfer(Context* context, const grpc::ByteBuffer* request,
                      grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ModelStreamInfer(
      Context* context) override;

  Reactor* ServerLive(Context* context, const inference::ServerLiveRequest* request,
                      inference::ServerLiveResponse* response) override;
  Reactor* ServerReady(Context* context, const inference::ServerReadyRequest* request,
                       inference::ServerReadyResponse* response) override;
  Reactor* ModelReady(Context* context, const inference::ModelReadyRequest* request,
                      inference::ModelReadyResponse* response) override;
  Reactor* ServerMetadata(Context* context, const inference::ServerMetadataRequest* request,
                          inference::ServerMetadataResponse* response) override;
  Reactor* ModelMetadata(Context* context, const inference::ModelMetadataRequest* request,
                         inference::ModelMetadataResponse* response) override;
  Reactor* ModelConfig(Context* context, const inference::ModelConfigRequest* request,
                       inference::ModelConfigResponse* response) override;
  Reactor* ModelStatistics(Context* context, const inference::ModelStatisticsRequest* request,
                           inference::ModelStatisticsResponse* response) override;
  Reactor* RepositoryIndex(Context* context, const inference::RepositoryIndexRequest* request,
                           inference::RepositoryIndexResponse* response) override;
  Reactor* RepositoryModelLoad(Context* context,
                               const inference::RepositoryModelLoadRequest* request,
                               inference::RepositoryModelLoadResponse* response) override;
  Reactor* RepositoryModelUnload(Context* context,
                                 const inference::RepositoryModelUnloadRequest* request,
                                 inference::RepositoryModelUnloadResponse* response) override;
  Reactor* TraceSetting(Context* context, const inference::TraceSettingRequest* request,
                        inference::TraceSettingResponse* response) override;
  Reactor* LogSettings(Context* context, const inference::LogSettingsRequest* request,
                       inference::LogSettingsResponse* response) override;

  Reactor* SystemSharedMemoryStatus(Context* context,
                                    const inference::SystemSharedMemoryStatusRequest* request,
                                    inference::SystemSharedMemoryStatusResponse* response) override;
  Reactor* SystemSharedMemoryRegister(
      Context* context, const inference::SystemSharedMemoryRegisterRequest* request,
      inference::SystemSharedMemoryRegisterResponse* response) override;
  Reactor* SystemSharedMemoryUnregister(
      Context* context, const inference::SystemSharedMemoryUnregisterRequest* request,
      inference::SystemSharedMemoryUnregisterResponse* response) override;
  Reactor* CudaSharedMemoryStatus(Context* context,
                                  const inference::CudaSharedMemoryStatusRequest* request,
                                  inference::CudaSharedMemoryStatusResponse* response) override;
  Reactor* CudaSharedMemoryRegister(Context* context,
                                    const inference::CudaSharedMemoryRegisterRequest* request,
                                    inference::CudaSharedMemoryRegisterResponse* response) override;
  Reactor* CudaSharedMemoryUnregister(
      Context* context, const inference::CudaSharedMemoryUnregisterRequest* request,
      inference::CudaSharedMemoryUnregisterResponse* response) override;

 private:
  ExecuteDeps* const deps_;
  Door door_;
  std::atomic<bool> serving_{false};
};

}  // namespace warpcall::oip
