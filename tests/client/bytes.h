// What the client's library holds, as strings of bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cpp/rpc/channel.h"
#include "warpcall/tensor.h"

namespace warpcall::testing {

inline constexpr int64_t kMiB = int64_t{1} << 20;

inline std::string Bytes(const client::Tensor& tensor) {
  return {tensor.data().data(), tensor.data().size()};
}

// Of a message that is sent in pieces.
inline std::string Bytes(const std::vector<client::Piece>& message) {
  std::string bytes;
  for (const client::Piece& piece : message) bytes.append(piece.bytes.data(), piece.bytes.size());
  return bytes;
}

}  // namespace warpcall::testing
