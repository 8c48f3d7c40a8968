#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/inspect/describe.h"
#include "server/transport/codec.h"
#include "server/transport/graph_codec.h"
#include "server/transport/graph_request.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

// A request whose names are known and whose shapes are possible.
struct CheckedDescribe {
  v1::DescribeRequest request;
  const Kernel* kernel = nullptr;
  Problem problem;
};

absl::Status Check(const Registry& registry, const std::string& bytes, CheckedDescribe* checked) {
  v1::DescribeRequest& request = checked->request;
  RETURN_IF_ERROR(ParseSmall(bytes, &request));
  ASSIGN_OR_RETURN(checked->kernel, registry.Find(request.kernel()));
  RETURN_IF_ERROR(registry.CheckImplementationName(*checked->kernel, request.implementation()));
  ASSIGN_OR_RETURN(checked->problem,
                   ToProblem(request.inputs(), request.attributes(), *checked->kernel->op));
  return absl::OkStatus();
}

// Replaces the handles of a graph's inputs by the types and shapes of their tensors, and has the
// request read the graph.
absl::Status ReadGraphOf(const ExecuteDeps& deps, v1::DescribeRequest* message, Request* request) {
  if (!message->kernel().empty() || !message->implementation().empty() ||
      message->inputs_size() > 0 || message->attributes_size() > 0 || !message->device().empty())
    return absl::InvalidArgumentError(
        "a request with a graph must leave kernel, implementation, inputs, attributes and device "
        "empty; the graph has its own");
  const std::string bytes = message->graph().SerializeAsString();
  const wire::Bytes fragment = bytes;
  GraphCodec codec(deps.registry, nullptr);
  RETURN_IF_ERROR(codec.Decode(absl::MakeConstSpan(&fragment, 1)));
  for (int i = 0; i < codec.header().inputs_size(); ++i)
    if (const size_t size = codec.split().tensor_data[static_cast<size_t>(i)].size; size > 0)
      return absl::InvalidArgumentError(
          absl::StrCat(GraphInputLabel(codec.header().inputs(i).name()), " has ", size,
                       " bytes of data; Describe takes a type and a shape, or a handle"));
  RETURN_IF_ERROR(codec.FindResidents(&deps.engine->residents(), request->caller()->name));
  ASSIGN_OR_RETURN(CallSpec spec, codec.Spec());
  spec.keeps.clear();  // nothing runs
  RETURN_IF_ERROR(request->ReadKernel(std::move(spec)));
  ASSIGN_OR_RETURN(Problem problem, codec.ToProblem(*request->kernel().op));
  *message->mutable_graph() = codec.header();
  for (v1::GraphInput& input : *message->mutable_graph()->mutable_inputs())
    input.mutable_tensor()->clear_handle();
  request->SetProblem(std::move(problem));
  RETURN_IF_ERROR(request->Choose(absl::MakeConstSpan(&request->problem(), 1)));
  request->EndUses();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ReadDescribe(const ExecuteDeps& deps, std::string* bytes,
                                     Request* request) {
  v1::DescribeRequest message;
  RETURN_IF_ERROR(ParseSmall(*bytes, &message));
  if (message.has_graph()) {
    RETURN_IF_ERROR(ReadGraphOf(deps, &message, request));
    *bytes = message.SerializeAsString();
    return int64_t{0};
  }
  const CallSpec spec = {.kernel = message.kernel(),
                         .implementation = message.implementation(),
                         .device = message.device(),
                         .request_id = ""};
  RETURN_IF_ERROR(request->ReadKernel(spec));
  ASSIGN_OR_RETURN(Problem problem,
                   ToProblem(message.inputs(), message.attributes(), *request->kernel().op));
  request->SetProblem(std::move(problem));
  RETURN_IF_ERROR(request->Choose(absl::MakeConstSpan(&request->problem(), 1)));
  return int64_t{0};
}

void AppendDescribeChoice(const Request& request, std::string* bytes) {
  v1::DescribeRequest chosen;
  if (request.problem().graph != nullptr)
    AddGraphChoice(*request.problem().graph, chosen.mutable_graph());
  else
    chosen.set_implementation(request.row().implementation.name);
  chosen.AppendToString(bytes);
}

absl::StatusOr<std::string> AnswerDescribe(const Registry& registry, Device* device,
                                           const std::string& bytes) {
  v1::DescribeRequest request;
  RETURN_IF_ERROR(ParseSmall(bytes, &request));
  if (request.has_graph()) {
    ASSIGN_OR_RETURN(const ChosenGraph graph,
                     ReadChosenGraph(registry, device->properties(), request.mutable_graph()));
    ASSIGN_OR_RETURN(const v1::DescribeResponse response,
                     inspect::DescribeGraph(graph.problem, graph.names, device));
    return response.SerializeAsString();
  }
  CheckedDescribe checked;
  RETURN_IF_ERROR(Check(registry, bytes, &checked));
  ASSIGN_OR_RETURN(const Row* const chosen,
                   registry.Select(*checked.kernel, checked.request.implementation(),
                                   checked.problem, device->properties()));
  ASSIGN_OR_RETURN(
      const v1::DescribeResponse response,
      inspect::DescribePlan(*checked.kernel->op, chosen->implementation, checked.problem, device));
  return response.SerializeAsString();
}

}  // namespace warpcall
