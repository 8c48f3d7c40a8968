// Graphs of kernels as JSON files, and the files of their tensors:
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
#include "client/cli/common/inputs.h"
#include "warpcall/graph.h"

namespace warpcall::cli {

struct GraphFile {
  std::vector<client::GraphStep> steps;
  std::vector<client::GraphOutput> outputs;
  // Names that steps read but that are not a step's own, in order of first use.
  std::vector<std::string> inputs;
};

// INVALID_ARGUMENT begins with the path: it names the place of what is not JSON by line and column,
// and of an unknown key, or a value of another type, by its step or output. Only the server checks
// that names, kernels and attributes exist and fit. Other errors have the system's reason.
absl::StatusOr<GraphFile> ReadGraphFile(const std::string& path);

// The files that `texts`, values of the option --`what`, give the names, in the order of the names;
// empty: it has none. A text is NAME=FILE, or FILE if there is only one name.
absl::StatusOr<std::vector<std::string>> FilesByName(const std::string& what,
                                                     const std::vector<std::string>& texts,
                                                     const std::vector<std::string>& names);

// Reads every input of the graph from its file, or takes it from the server (NAME=@HANDLE). `texts`
// are the values of --input.
absl::StatusOr<std::vector<client::GraphInput>> ReadGraphInputs(
    const GraphFile& graph, const std::vector<std::string>& texts, const InputReading& reading);

}  // namespace warpcall::cli
