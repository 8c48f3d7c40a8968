#include "client/cli/common/inputs.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/random_tensor.h"
#include "client/cli/common/tensor_text.h"
#include "client/cpp/npy.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

// Empty: none was asked for.
absl::StatusOr<std::optional<DataType>> ParseOptional(const std::string& type) {
  if (type.empty()) return std::optional<DataType>();
  ASSIGN_OR_RETURN(const DataType parsed, ParseDataType(type));
  return std::optional<DataType>(parsed);
}

absl::StatusOr<client::Tensor> ReadInput(const std::string& path,
                                         const client::NpyReadOptions& options) {
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

}  // namespace

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
    if (!cast.has_value() && type.has_value() && tensor.data_type() != *type)
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

}  // namespace warpcall::cli
