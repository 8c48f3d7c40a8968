#include <utility>

#include "proto/common/status_macros.h"
#include "server/inspect/describe.h"
#include "server/transport/codec.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

// A request, each name known and each shape possible.
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

}  // namespace

absl::StatusOr<int64_t> ReadDescribe(const std::string& bytes, Request* request) {
  v1::DescribeRequest message;
  RETURN_IF_ERROR(ParseSmall(bytes, &message));
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
  chosen.set_implementation(request.row().implementation.name);
  chosen.AppendToString(bytes);
}

absl::StatusOr<std::string> AnswerDescribe(const Registry& registry, Device* device,
                                           const std::string& bytes) {
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
