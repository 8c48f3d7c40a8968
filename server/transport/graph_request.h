// Reads a graph: the names and the order of its steps, and each step's problem.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/graph/step_graph.h"
#include "kernels/op.h"
#include "kernels/registry.h"
#include "server/engine/chooser.h"
#include "server/engine/residents.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall {

// "input \"x\"": begins messages about it.
std::string GraphInputLabel(absl::string_view name);
std::string GraphOutputLabel(absl::string_view name);

// A graph's steps as they were asked for, and which of its outputs stay. INVALID_ARGUMENT and
// NOT_FOUND name the input, the step or the output.
struct GraphWishes {
  std::vector<StepQuestion> steps;
  std::vector<std::optional<Residents::Terms>> keeps;  // by output; empty: none stays
};
absl::StatusOr<GraphWishes> ReadGraphWishes(const v1::ExecuteGraphRequest& request,
                                            const Registry& registry);

// The graph's problem; its steps have no rows yet. Inputs that are handles have their types and
// shapes by now. INVALID_ARGUMENT names the input, the step or the output. REQUIRES: `steps` are
// ReadGraphWishes's.
absl::StatusOr<Problem> ReadGraph(const v1::ExecuteGraphRequest& request,
                                  absl::Span<const StepQuestion> steps);

// The two ends of an inspection of a graph. The server appends the rows that it chose to the
// message: as many steps again, which have nothing but an implementation. protobuf merges what
// follows in a message with what came before.
void AddGraphChoice(const StepGraph& graph, v1::ExecuteGraphRequest* chosen);
// The child reads them: the graph with its rows.
struct ChosenGraph {
  std::vector<std::string> names;  // of the steps
  Problem problem;
};
absl::StatusOr<ChosenGraph> ReadChosenGraph(const Registry& registry,
                                            const DeviceProperties& device,
                                            v1::ExecuteGraphRequest* request);

}  // namespace warpcall
