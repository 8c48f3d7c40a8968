#include "client/cli/common/inputs.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/tensor_text.h"
#include "proto/common/half.h"
#include "proto/common/status_macros.h"
#include "warpcall/npy.h"

namespace warpcall::cli {
namespace {

using client::Tensor;

// Empty: none was asked for.
absl::StatusOr<std::optional<DataType>> ParseOptional(const std::string& type) {
  if (type.empty()) return std::optional<DataType>();
  ASSIGN_OR_RETURN(const DataType parsed, ParseDataType(type));
  return std::optional<DataType>(parsed);
}

absl::StatusOr<client::Tensor> ReadInput(const std::string& path,
                                         const client::NpyReadOptions& options) {
  if (!path.empty() && path[0] == kHandleMark) {
    if (path.size() == 1)
      return absl::InvalidArgumentError(
          "@ stands before a handle, as `warpcall tensors` lists them; ./@ is a file");
    return client::Tensor::FromHandle(path.substr(1));
  }
  const bool from_stdin = path == kStandardStream;
  const std::string name = from_stdin ? "stdin" : path;
  const Progress progress(absl::StrCat("reading ", name));
  std::string from;
  ASSIGN_OR_RETURN(client::Tensor tensor, from_stdin
                                              ? client::ReadNpy(STDIN_FILENO, name, options, &from)
                                              : client::ReadNpy(path, options, &from));
  if (!from.empty())
    PrintNote(absl::StrCat(name, ": ", from, " converted to ", DataTypeName(tensor.data_type())));
  return tensor;
}

// Both distributions give values in pairs, out of 64 random bits.
using Pair = std::pair<float, float>;

// 24 bits for the magnitude and one for the sign.
float AwayFromZero(uint32_t bits) {
  const float magnitude = 0.0625f + 0.9375f * static_cast<float>(bits >> 8) * 0x1p-24f;
  return (bits & 1) != 0 ? -magnitude : magnitude;
}

Pair AwayFromZeroPair(uint64_t bits) {
  return {AwayFromZero(static_cast<uint32_t>(bits)),
          AwayFromZero(static_cast<uint32_t>(bits >> 32))};
}

// Box and Muller 1958. The standard does not fix what std::normal_distribution gives.
Pair NormalPair(uint64_t bits) {
  const float above_zero = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;  // to 1
  const float turn = static_cast<float>(bits & 0xFFFFFF) * 0x1p-24f;
  const float radius = std::sqrt(-2 * std::log(above_zero));
  const float angle = 2 * std::numbers::pi_v<float> * turn;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

template <typename T>
void Fill(int64_t elements, Pair (*pair_of)(uint64_t), std::mt19937_64* random, char* data) {
  Pair pair;
  for (int64_t i = 0; i < elements; ++i) {
    if (i % 2 == 0) pair = pair_of((*random)());
    const T value = FromFloat<T>(i % 2 == 0 ? pair.first : pair.second);
    std::memcpy(data + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

}  // namespace

std::string HandleText(const std::string& handle) { return absl::StrCat("@", handle); }

absl::StatusOr<std::vector<client::Tensor>> ReadInputs(absl::Span<const std::string> paths,
                                                       const InputReading& reading) {
  ASSIGN_OR_RETURN(const std::optional<DataType> type, ParseOptional(reading.type));
  ASSIGN_OR_RETURN(const std::optional<DataType> cast, ParseOptional(reading.cast));
  if (std::count(paths.begin(), paths.end(), kStandardStream) > 1)
    return absl::InvalidArgumentError("only one input can be -, which is stdin");
  const client::NpyReadOptions options{
      .uint16_is_bfloat16 = type == DataType::kBFloat16,
      .cast = cast,
      .cast_advice = reading.can_cast ? "--cast float32 converts them"
                                      : "numpy.ndarray.astype('float32') converts them"};
  std::vector<client::Tensor> tensors;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(client::Tensor tensor, ReadInput(path, options));
    if (!tensor.is_resident() && !cast.has_value() && type.has_value() &&
        tensor.data_type() != *type)
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": --type ", DataTypeName(*type), ", but the file has ",
          DataTypeName(tensor.data_type()),
          reading.can_cast ? absl::StrCat("; --cast ", DataTypeName(*type), " converts it") : ""));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<std::vector<client::Tensor>> ReadInputs(absl::Span<const std::string> paths,
                                                       const std::string& type) {
  return ReadInputs(paths, InputReading{.type = type});
}

absl::StatusOr<std::vector<client::Tensor>> RandomInputs(absl::Span<const client::TensorSpec> specs,
                                                         uint64_t seed) {
  const Progress progress("making inputs");
  std::mt19937_64 random(seed);
  std::vector<client::Tensor> tensors;
  for (const client::TensorSpec& spec : specs) {
    ASSIGN_OR_RETURN(client::Tensor tensor, RandomTensor(spec, Distribution::kNormal, &random));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<Tensor> RandomTensor(const client::TensorSpec& spec, Distribution distribution,
                                    std::mt19937_64* random) {
  ASSIGN_OR_RETURN(const int64_t bytes, client::ByteCount(spec.data_type, spec.shape));
  const auto size = static_cast<size_t>(bytes);
  std::shared_ptr<char[]> data = client::AllocateBytes(size);
  if (data == nullptr)
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for an input of ", bytes, " bytes"));
  const int64_t elements = bytes / static_cast<int64_t>(ElementBytes(spec.data_type));
  const auto pair_of = distribution == Distribution::kNormal ? NormalPair : AwayFromZeroPair;
  switch (spec.data_type) {
    case DataType::kFloat32:
      Fill<float>(elements, pair_of, random, data.get());
      break;
    case DataType::kFloat16:
      Fill<Float16>(elements, pair_of, random, data.get());
      break;
    case DataType::kBFloat16:
      Fill<BFloat16>(elements, pair_of, random, data.get());
      break;
  }
  const absl::Span<const char> span(data.get(), size);
  return Tensor(spec.data_type, spec.shape, span, std::move(data));
}

}  // namespace warpcall::cli
