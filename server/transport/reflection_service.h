// gRPC's server reflection (grpc.reflection.v1, and v1alpha for older clients), which is answered
// to everybody. gRPC's own plugin parses messages of any size, and serves v1alpha alone.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/transport/request.h"

namespace warpcall {

using ReflectionReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// Answers for `services`. Both outlive the call that it returns.
ReflectionReactor* StartReflectionCall(const ExecuteDeps* deps,
                                       const std::vector<std::string>* services,
                                       grpc::CallbackServerContext* context);

// `Protocol`: the generated class of the service, grpc::reflection::v1::ServerReflection or
// v1alpha's. The messages of both have the same bytes.
template <typename Protocol>
class ReflectionService final
    : public Protocol::template WithRawCallbackMethod_ServerReflectionInfo<
          typename Protocol::Service> {
 public:
  ReflectionService(const ExecuteDeps* deps, const std::vector<std::string>* services)
      : deps_(deps), services_(services) {}

  ReflectionReactor* ServerReflectionInfo(grpc::CallbackServerContext* context) override {
    return StartReflectionCall(deps_, services_, context);
  }

 private:
  const ExecuteDeps* const deps_;
  const std::vector<std::string>* const services_;
};

}  // namespace warpcall
