// The service that the wire sees.
#pragma once

#include <grpcpp/grpcpp.h>

#include "server/transport/request.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall {

// Initial metadata of Benchmark, BenchmarkStream, Tune, Profile and Describe, sent when the call is
// queued: how many such calls go before it, "0" where it begins at once.
inline constexpr char kQueuePositionKey[] = "warpcall-queue-position";

// Execute and ExecuteStream take raw bytes, so that protobuf never copies a tensor, Benchmark,
// BenchmarkStream, Tune, Profile and Describe because a child process reads them; everything else
// is generated.
using KernelServiceBase = v1::KernelService::WithRawCallbackMethod_Execute<
    v1::KernelService::WithRawCallbackMethod_ExecuteStream<
        v1::KernelService::WithCallbackMethod_ListKernels<
            v1::KernelService::WithCallbackMethod_ListDevices<
                v1::KernelService::WithCallbackMethod_ServerInfo<
                    v1::KernelService::WithRawCallbackMethod_Benchmark<
                        v1::KernelService::WithRawCallbackMethod_BenchmarkStream<
                            v1::KernelService::WithRawCallbackMethod_Tune<
                                v1::KernelService::WithRawCallbackMethod_Profile<
                                    v1::KernelService::WithRawCallbackMethod_Describe<
                                        v1::KernelService::Service>>>>>>>>>>;

class KernelService final : public KernelServiceBase {
 public:
  explicit KernelService(ExecuteDeps* deps) : deps_(deps) {}

  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ExecuteStream(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListKernels(grpc::CallbackServerContext* context,
                                        const v1::ListKernelsRequest* request,
                                        v1::ListKernelsResponse* response) override;
  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* ServerInfo(grpc::CallbackServerContext* context,
                                       const v1::ServerInfoRequest* request,
                                       v1::ServerInfoResponse* response) override;
  grpc::ServerUnaryReactor* Benchmark(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* BenchmarkStream(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tune(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Profile(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

 private:
  ExecuteDeps* const deps_;
};

}  // namespace warpcall
