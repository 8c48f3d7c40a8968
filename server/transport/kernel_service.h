// The service that the wire sees.
#pragma once

#include <grpcpp/grpcpp.h>

#include "server/transport/request.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall {

// Initial metadata of Benchmark, BenchmarkStream, Tune, Profile, Describe and Push, sent when the
// call is queued: how many such calls go before it, "0" where it begins at once.
inline constexpr char kQueuePositionKey[] = "warpcall-queue-position";

// Every method takes raw bytes: those of Execute, ExecuteStream, ExecuteGraph and Put protobuf
// would copy, those of Benchmark, BenchmarkStream, Tune, Profile, Describe and Push a child process
// reads, and of the others protobuf would parse any number.
using InquiryServiceBase = v1::KernelService::WithRawCallbackMethod_ListKernels<
    v1::KernelService::WithRawCallbackMethod_ListDevices<
        v1::KernelService::WithRawCallbackMethod_ServerInfo<
            v1::KernelService::WithRawCallbackMethod_Benchmark<
                v1::KernelService::WithRawCallbackMethod_BenchmarkStream<
                    v1::KernelService::WithRawCallbackMethod_Tune<
                        v1::KernelService::WithRawCallbackMethod_Profile<
                            v1::KernelService::WithRawCallbackMethod_Describe<
                                v1::KernelService::WithRawCallbackMethod_Push<
                                    v1::KernelService::Service>>>>>>>>>;
using KernelServiceBase = v1::KernelService::WithRawCallbackMethod_Execute<
    v1::KernelService::WithRawCallbackMethod_ExecuteStream<
        v1::KernelService::WithRawCallbackMethod_ExecuteGraph<
            v1::KernelService::WithRawCallbackMethod_Put<
                v1::KernelService::WithRawCallbackMethod_Get<
                    v1::KernelService::WithRawCallbackMethod_Free<
                        v1::KernelService::WithRawCallbackMethod_ListTensors<
                            InquiryServiceBase>>>>>>>;

class KernelService final : public KernelServiceBase {
 public:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  explicit KernelService(ExecuteDeps* deps) : deps_(deps) {}

  Reactor* Execute(Context* context, const grpc::ByteBuffer* request,
                   grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ExecuteStream(
      Context* context) override;
  Reactor* ListKernels(Context* context, const grpc::ByteBuffer* request,
                       grpc::ByteBuffer* response) override;
  Reactor* ListDevices(Context* context, const grpc::ByteBuffer* request,
                       grpc::ByteBuffer* response) override;
  Reactor* ServerInfo(Context* context, const grpc::ByteBuffer* request,
                      grpc::ByteBuffer* response) override;
  Reactor* Benchmark(Context* context, const grpc::ByteBuffer* request,
                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* BenchmarkStream(
      Context* context, const grpc::ByteBuffer* request) override;
  Reactor* Tune(Context* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response) override;
  Reactor* Profile(Context* context, const grpc::ByteBuffer* request,
                   grpc::ByteBuffer* response) override;
  Reactor* Describe(Context* context, const grpc::ByteBuffer* request,
                    grpc::ByteBuffer* response) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Put(Context* context,
                                                 grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Get(Context* context,
                                                  const grpc::ByteBuffer* request) override;
  Reactor* Free(Context* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response) override;
  Reactor* ListTensors(Context* context, const grpc::ByteBuffer* request,
                       grpc::ByteBuffer* response) override;
  Reactor* ExecuteGraph(Context* context, const grpc::ByteBuffer* request,
                        grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Push(Context* context,
                                                   const grpc::ByteBuffer* request) override;

 private:
  ExecuteDeps* const deps_;
};

}  // namespace warpcall
