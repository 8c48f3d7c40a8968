// Tensors whose bytes are still coming. Internal to the library.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/common/check.h"
#include "warpcall/call.h"
#include "warpcall/tensor.h"

namespace warpcall::client {

class OutputBuffers {
 public:
  // Memory for all of `specs`, the first ones' as Call::destinations says. INVALID_ARGUMENT when a
  // shape is none, or a destination not for its output; RESOURCE_EXHAUSTED when there is no memory.
  static absl::StatusOr<OutputBuffers> Allocate(std::vector<TensorSpec> specs,
                                                absl::Span<const Destination> destinations = {});

  const std::vector<TensorSpec>& specs() const { return specs_; }
  // Memory of an output's bytes. Threads may write to different bytes at once.
  char* data(size_t output) {
    WARPCALL_CHECK(output < memory_.size(), output, memory_.size());
    return memory_[output].get();
  }

  // The tensors, all of whose bytes have been written. This holds nothing afterwards.
  std::vector<Tensor> Release();

 private:
  std::vector<TensorSpec> specs_;
  std::vector<size_t> bytes_;
  std::vector<std::shared_ptr<char[]>> memory_;
};

}  // namespace warpcall::client
