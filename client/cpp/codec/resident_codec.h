// The messages of Put, Get, Free and ListTensors as bytes of the protocol. Internal to the library.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/codec/codec.h"
#include "warpcall/client.h"

namespace warpcall::client {

// The first message of Put: `tensor`, but for its data.
std::string EncodePutHeader(const Tensor& tensor, const PutOptions& options);
// The content of a PutResponse. `resident.tensor` is not set.
struct Placed {
  std::string handle;
  Resident resident;
};
absl::StatusOr<Placed> DecodePut(Fragments message);

std::string EncodeGet(const std::string& handle);
// The tensor that a Get's header announces.
absl::StatusOr<TensorSpec> DecodeGetHeader(Fragments header);

std::string EncodeFree(absl::Span<const std::string> handles);
absl::StatusOr<FreeReport> DecodeFree(Fragments message);

absl::StatusOr<std::vector<TensorInfo>> DecodeTensors(Fragments message);

}  // namespace warpcall::client
