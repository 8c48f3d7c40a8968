// The bytes of one tensor, put together from chunks that may come in any order, without copying
// them, but for splinters.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "proto/common/check.h"
#include "server/transport/slices.h"

namespace warpcall {

class ChunkAssembler {
 public:
  explicit ChunkAssembler(int64_t bytes) : bytes_(bytes) { WARPCALL_DCHECK(bytes >= 0, bytes); }
  ChunkAssembler(ChunkAssembler&&) = default;
  ~ChunkAssembler();

  // `data` stand at `offset`. INVALID_ARGUMENT when they reach outside the tensor or come twice.
  // Data that are short, or lie in splinters, are gathered: copied to the end of what was gathered
  // before them, so that neither their number nor the read buffers that they are cut from weigh
  // much more than they do.
  absl::Status Add(int64_t offset, const Slices& data);

  int64_t bytes() const { return bytes_; }
  // All bytes before this offset have come.
  int64_t complete_bytes() const { return complete_; }
  // Bytes that have come and were not taken.
  int64_t held_bytes() const { return held_; }
  // Number of pieces that hold those bytes.
  int64_t held_pieces() const { return static_cast<int64_t>(pieces_.size()); }
  // Bytes that were copied together, of all that came.
  int64_t gathered_bytes() const { return gathered_bytes_; }

  // The next `count` bytes in order, in pieces. REQUIRES: they have come.
  Slices Take(int64_t count);

 private:
  struct Piece {
    int64_t size() const;

    grpc::Slice slice;
    std::string gathered;  // instead of the slice, unless empty
  };

  void Gather(int64_t offset, const Slices& data);
  static grpc::Slice ToSlice(Piece piece);

  const int64_t bytes_;
  int64_t taken_ = 0;
  int64_t complete_ = 0;
  int64_t held_ = 0;
  int64_t gathered_bytes_ = 0;
  std::map<int64_t, Piece> pieces_;  // by offset; none empty, none overlaps another
};

}  // namespace warpcall
