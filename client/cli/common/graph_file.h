// Graphs of kernels as JSON files:
//
//   {"steps": [{"name": "h", "kernel": "linear", "inputs": ["x", "w1", "b1"],
//               "attributes": {"activation": "gelu"}},
//              {"name": "y", "kernel": "linear", "implementation": "cuda",
//               "inputs": ["h", "w2", "b2"]}],
//    "outputs": ["y", {"name": "h", "keep": true, "ttl": "1h", "label": "hidden"}]}
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "warpcall/graph.h"

namespace warpcall::cli {

struct GraphFile {
  std::vector<client::GraphStep> steps;
  std::vector<client::GraphOutput> outputs;
  // Names that steps read and no step has, in order of first use.
  std::vector<std::string> inputs;
};

// INVALID_ARGUMENT begins with the path: it names the place of what is not JSON by line and column,
// and of an unknown key, or a value of another type, by its step or output. Only the server checks
// that names, kernels and attributes exist and fit. Other errors have the system's reason.
absl::StatusOr<GraphFile> ReadGraphFile(const std::string& path);

}  // namespace warpcall::cli
