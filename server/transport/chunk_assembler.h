// The bytes of one tensor, put together from chunks that may come in any order, without copying
// them.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"

namespace warpcall {

class ChunkAssembler {
 public:
  explicit ChunkAssembler(int64_t bytes) : bytes_(bytes) {}

  // `data` stand at `offset`. INVALID_ARGUMENT when they reach outside the tensor or come twice.
  absl::Status Add(int64_t offset, std::vector<grpc::Slice> data);

  int64_t bytes() const { return bytes_; }
  // Everything before this byte has come.
  int64_t complete_bytes() const { return complete_; }
  // Come and not taken.
  int64_t held_bytes() const { return held_; }

  // The next `count` bytes in order, in pieces. REQUIRES: they have come.
  std::vector<grpc::Slice> Take(int64_t count);

 private:
  const int64_t bytes_;
  int64_t taken_ = 0;
  int64_t complete_ = 0;
  int64_t held_ = 0;
  std::map<int64_t, grpc::Slice> pieces_;  // by offset; none empty, none overlaps another
};

}  // namespace warpcall
