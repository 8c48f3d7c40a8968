// Turns what the client's library holds into strings of bytes.
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

// Joins the pieces of a message.
inline std::string Bytes(const std::vector<client::Piece>& message) {
  std::string bytes;
  for (const client::Piece& piece : message) bytes.append(piece.bytes.data(), piece.bytes.size());
  return bytes;
}

}  // namespace warpcall::testing
