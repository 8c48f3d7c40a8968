// The service that the wire sees.
#pragma once

#include <grpcpp/grpcpp.h>

#include "server/transport/request.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall {

// Execute and ExecuteStream take raw bytes, so that protobuf never copies a tensor, Benchmark,
// Profile and Describe because a child process reads them; everything else is generated.
using KernelServiceBase = v1::KernelService::WithRawCallbackMethod_Execute<
    v1::KernelService::WithRawCallbackMethod_ExecuteStream<
        v1::KernelService::WithCallbackMethod_ListKernels<
            v1::KernelService::WithCallbackMethod_ListDevices<
                v1::KernelService::WithRawCallbackMethod_Benchmark<
                    v1::KernelService::WithRawCallbackMethod_Profile<
                        v1::KernelService::WithRawCallbackMethod_Describe<
                            v1::KernelService::Service>>>>>>>;

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
  grpc::ServerUnaryReactor* Benchmark(grpc::CallbackServerContext* context,
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
