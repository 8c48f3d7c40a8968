// One call of a unary method, as gRPC hands it over.
#pragma once

#include <grpcpp/grpcpp.h>

namespace warpcall {

// All three belong to gRPC and outlive the call's reactor.
struct Unary {
  grpc::CallbackServerContext* context;
  const grpc::ByteBuffer* request;
  grpc::ByteBuffer* response;

  // The request's bytes, which the call may clear: gRPC would keep them until the call is over.
  grpc::ByteBuffer* message() const { return const_cast<grpc::ByteBuffer*>(request); }
};

}  // namespace warpcall
