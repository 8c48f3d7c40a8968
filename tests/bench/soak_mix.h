// What the soak sends: every kernel in many sizes and shapes, on data that differ each time.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace warpcall::bench {

inline constexpr size_t kSmallRequestBytesMax = size_t{64} << 10;
inline constexpr size_t kLargeRequestBytesMax = size_t{64} << 20;

struct SoakInput {
  std::vector<int64_t> shape;
  absl::Span<const char> data;  // float32
};

struct SoakRequest {
  std::string kernel;
  std::vector<SoakInput> inputs;
  std::vector<int64_t> output_shape;

  int64_t InputBytes() const;
};

// The message; refers to the inputs' data.
grpc::ByteBuffer Encode(const SoakRequest& request, const std::string& device);

// DATA_LOSS unless `response` has one float32 output of the right shape and length; `compare`:
// and, of identity, the bytes of its input.
absl::Status CheckResponse(const SoakRequest& request, grpc::ByteBuffer* response, bool compare);

class SoakMix {
 public:
  // Requests take their data from random places of `data`: float32, at least twice
  // kLargeRequestBytesMax.
  SoakMix(absl::Span<const char> data, uint64_t seed) : data_(data), random_(seed) {}

  SoakRequest Small();    // 64 bytes to kSmallRequestBytesMax of inputs, any kernel
  SoakRequest Large();    // 1 MiB to kLargeRequestBytesMax
  SoakRequest Largest();  // identity of kLargeRequestBytesMax

 private:
  enum class Size : uint8_t { kSmall, kLarge };

  SoakRequest Any(Size size);
  SoakRequest Elementwise(const char* kernel, Size size);
  SoakInput Input(std::vector<int64_t> shape);
  size_t Pick(size_t count);

  absl::Span<const char> data_;
  std::mt19937_64 random_;
};

}  // namespace warpcall::bench
