#include "client/cli/common/tensor_text.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/common/suggest.h"

namespace warpcall::cli {
namespace {

struct Spelling {
  absl::string_view text;
  DataType type;
};

constexpr Spelling kSpellings[] = {
    {"float32", DataType::kFloat32}, {"f32", DataType::kFloat32},
    {"fp32", DataType::kFloat32},    {"float16", DataType::kFloat16},
    {"f16", DataType::kFloat16},     {"fp16", DataType::kFloat16},
    {"half", DataType::kFloat16},    {"bfloat16", DataType::kBFloat16},
    {"bf16", DataType::kBFloat16},
};

}  // namespace

absl::StatusOr<DataType> ParseDataType(absl::string_view text) {
  std::vector<std::string> known;
  for (const Spelling& spelling : kSpellings) {
    if (absl::EqualsIgnoreCase(text, spelling.text)) return spelling.type;
    known.emplace_back(spelling.text);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown type '", text, "'; expected ", kTypesText, DidYouMean(text, known)));
}

absl::StatusOr<int64_t> ParseDimension(absl::string_view text) {
  int64_t dimension;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(text, &dimension)) return absl::InvalidArgumentError("");
  return dimension;
}

}  // namespace warpcall::cli
