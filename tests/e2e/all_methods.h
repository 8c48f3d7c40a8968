// Every method that the server has.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "inference/grpc_service.pb.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::testing {

// "/package.Service/Method", of each.
inline std::vector<std::string> AllMethods() {
  std::vector<std::string> methods = {
      "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
      "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
  for (const google::protobuf::FileDescriptor* const file :
       {v1::ExecuteRequest::descriptor()->file(),
        inference::ModelInferRequest::descriptor()->file()}) {
    const google::protobuf::ServiceDescriptor& service = *file->service(0);
    for (int i = 0; i < service.method_count(); ++i)
      methods.push_back(absl::StrCat("/", service.full_name(), "/", service.method(i)->name()));
  }
  return methods;
}

}  // namespace warpcall::testing
