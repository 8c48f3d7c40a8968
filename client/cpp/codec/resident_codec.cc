#include "client/cpp/codec/resident_codec.h"

#include <cstdint>
#include <utility>

#include "absl/time/time.h"
#include "client/cpp/codec/values.h"
#include "proto/common/status_macros.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::client {

std::string EncodePutHeader(const Tensor& tensor, const PutOptions& options) {
  v1::PutRequest request;
  v1::PutHeader* header = request.mutable_header();
  header->mutable_tensor()->set_data_type(static_cast<v1::DataType>(tensor.data_type()));
  for (const int64_t dimension : tensor.shape()) header->mutable_tensor()->add_shape(dimension);
  header->set_device(options.device);
  header->set_ttl_ns(absl::ToInt64Nanoseconds(options.ttl));
  header->set_label(options.label);
  header->set_sha256(options.sha256);
  header->set_evictable(options.evictable);
  return request.SerializeAsString();
}

absl::StatusOr<Placed> DecodePut(Fragments message) {
  v1::PutResponse response;
  if (!response.ParseFromString(Join(message))) return BadResponse("not a PutResponse");
  if (response.handle().empty()) return BadResponse("a PutResponse without a handle");
  Placed placed{.handle = response.handle()};
  placed.resident.device = response.device();
  placed.resident.bytes = response.bytes();
  placed.resident.expires = absl::FromUnixNanos(response.expires_unix_ns());
  placed.resident.existed = response.existed();
  return placed;
}

std::string EncodeGet(const std::string& handle) {
  v1::GetRequest request;
  request.set_handle(handle);
  return request.SerializeAsString();
}

absl::StatusOr<TensorSpec> DecodeGetHeader(Fragments header) {
  v1::Tensor tensor;
  if (!tensor.ParseFromString(Join(header))) return BadResponse("not a Tensor");
  return DecodeSpec(tensor);
}

std::string EncodeFree(absl::Span<const std::string> handles) {
  v1::FreeRequest request;
  for (const std::string& handle : handles) request.add_handles(handle);
  return request.SerializeAsString();
}

absl::StatusOr<FreeReport> DecodeFree(Fragments message) {
  v1::FreeResponse response;
  if (!response.ParseFromString(Join(message))) return BadResponse("not a FreeResponse");
  return FreeReport{.bytes = response.bytes(),
                    .unknown = {response.unknown().begin(), response.unknown().end()}};
}

absl::StatusOr<std::vector<TensorInfo>> DecodeTensors(Fragments message) {
  v1::ListTensorsResponse response;
  if (!response.ParseFromString(Join(message))) return BadResponse("not a ListTensorsResponse");
  std::vector<TensorInfo> tensors;
  for (const v1::TensorInfo& tensor : response.tensors()) {
    v1::Tensor typed;
    typed.set_data_type(tensor.data_type());
    *typed.mutable_shape() = tensor.shape();
    ASSIGN_OR_RETURN(TensorSpec spec, DecodeSpec(typed));
    tensors.push_back({.handle = tensor.handle(),
                       .label = tensor.label(),
                       .device = tensor.device(),
                       .spec = std::move(spec),
                       .bytes = tensor.bytes(),
                       .created = absl::FromUnixNanos(tensor.created_unix_ns()),
                       .expires = absl::FromUnixNanos(tensor.expires_unix_ns()),
                       .uses = tensor.uses(),
                       .evictable = tensor.evictable()});
  }
  return tensors;
}

}  // namespace warpcall::client
