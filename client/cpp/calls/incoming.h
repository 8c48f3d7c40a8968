// Tensors that come in chunks: checks that each of their bytes comes once. Internal to the library.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cpp/calls/byte_ranges.h"
#include "client/cpp/codec/codec.h"
#include "proto/wire/chunk.h"
#include "warpcall/tensor.h"

namespace warpcall::client {

class IncomingTensors {
 public:
  // These are to come.
  absl::Status Expect(const std::vector<TensorSpec>& tensors);
  // Reads a chunk. INTERNAL if it is malformed, or is of no tensor here, beyond its end, or of
  // bytes that came before.
  absl::Status Add(Fragments payload, wire::ChunkView* chunk);
  // INTERNAL unless every byte has come.
  absl::Status CheckComplete() const;

 private:
  std::vector<int64_t> bytes_;  // of each tensor
  std::vector<ByteRanges> came_;
};

}  // namespace warpcall::client
