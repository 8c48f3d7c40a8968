// The requests of `warpcall load`: a mix of kernels, sizes and types with weights, as text.
//
//   MIX     = ENTRY,ENTRY,...
//   ENTRY   = KERNEL[OPTION,OPTION,...]:SHAPES:TYPE=WEIGHT    all but KERNEL may be left out
//   OPTION  = implementation=NAME | device=NAME | ATTRIBUTE=VALUE    in square brackets
//   SHAPES  = SHAPE*SHAPE*...    one for each input, or one for all of them
//   SHAPE   = 64x1024
//   TYPE    = float32 | float16 | bfloat16, or in another way that ParseDataType takes
//
//   gelu:4096=80,softmax:64x1024:bf16=15,matmul[transpose_b=true]:256x128*512x128=5
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/common/tensor_text.h"
#include "proto/common/data_type.h"
#include "warpcall/client.h"

namespace warpcall::cli {

// Largest gRPC message: its length is sent in 32 bits. The server's own limit is usually lower, and
// the server enforces it.
inline constexpr int64_t kRequestBytesMax = (int64_t{1} << 32) - 1;
// Each entry costs statistics in each worker.
inline constexpr int kMixEntriesMax = 16;
inline constexpr int64_t kWeightMax = 1'000'000'000;

struct LoadEntry {
  std::string kernel = {};
  std::string implementation = {};           // empty: the server chooses
  std::string device = {};                   // likewise
  std::vector<std::string> attributes = {};  // name=value
  Shapes shapes = {};
  DataType data_type = DataType::kFloat32;
  double weight = 1;
};

absl::StatusOr<Shapes> ParseShapes(absl::string_view text);

// `defaults` gives an entry the shapes, type, implementation, device and attributes that it lacks.
// INVALID_ARGUMENT says which entry is wrong, and why.
absl::StatusOr<std::vector<LoadEntry>> ParseMix(absl::string_view mix, const LoadEntry& defaults);

// Returns the entry as text for ParseMix, without its weight.
std::string EntryName(const LoadEntry& entry);

// Repeats a single shape for every input that `kernels` lists, unless the kernel has weights and
// the shape has several dimensions. INVALID_ARGUMENT if the number of shapes is wrong or the inputs
// have more bytes than kRequestBytesMax. An unlisted kernel stays as it is, so that the server's
// error lists the kernels.
absl::Status FitToKernel(absl::Span<const client::KernelInfo> kernels, LoadEntry* entry);

}  // namespace warpcall::cli
