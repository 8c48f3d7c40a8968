#include "client/cli/common/benchmark_cells.h"

#include "absl/strings/str_format.h"
#include "client/cli/common/table.h"
#include "proto/common/pinned_name.h"

namespace warpcall::cli {
namespace {

// One or two samples say nothing about how they scatter.
constexpr int kSamplesOfNoiseMin = 3;

}  // namespace

std::string NameCell(const client::BenchmarkResult& result) {
  constexpr size_t kNameWidth = 22;  // onednn_layer_normalization has more
  return CutMiddle(PinnedName(result), kNameWidth);
}

std::string ShareCell(double share) {
  return share > 0 ? absl::StrFormat("%.0f%%", share * 100) : "-";
}

std::string RateCell(double per_second) {
  std::string text = HumanRate(per_second, "");
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string NoiseCell(const client::BenchmarkResult& result) {
  const bool is_known = result.median_high_ns() > 0 && result.iterations() >= kSamplesOfNoiseMin;
  return is_known ? absl::StrFormat("%.1f%%", result.noise() * 100) : "-";
}

}  // namespace warpcall::cli
