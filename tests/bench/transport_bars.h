// What the data path is held to, and whether a run met it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/bench/transport_table.h"

namespace warpcall::bench {

struct Bar {
  std::string text;              // what is asked
  std::optional<bool> met = {};  // nothing: not measured
  std::string found = {};        // what was measured, or why it was not
};

// `on_gpu`: the device that warpcalld chose is a GPU.
std::vector<Bar> JudgeBars(const Results& results, bool on_gpu);

std::string BarsText(absl::Span<const Bar> bars);
nlohmann::json ToJson(absl::Span<const Bar> bars);

}  // namespace warpcall::bench
