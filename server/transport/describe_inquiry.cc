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

absl::Status Read(const Registry& registry, const std::string& bytes, CheckedDescribe* checked) {
  v1::DescribeRequest& request = checked->request;
  RETURN_IF_ERROR(ParseSmall(bytes, &request));
  ASSIGN_OR_RETURN(checked->kernel, registry.Find(request.kernel()));
  RETURN_IF_ERROR(registry.CheckImplementationName(*checked->kernel, request.implementation()));
  ASSIGN_OR_RETURN(checked->problem,
                   ToProblem(request.inputs(), request.attributes(), *checked->kernel->op));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<inspect::Inquiry> ToDescribeInquiry(const ExecuteDeps& deps, const MayUse& may_use,
                                                   std::string bytes) {
  CheckedDescribe checked;
  RETURN_IF_ERROR(Read(*deps.registry, bytes, &checked));
  const Chooser chooser(&deps.engine->choices(),
                        {.kernel = checked.kernel,
                         .implementation = checked.request.implementation(),
                         .device = checked.request.device(),
                         .may_use = may_use});
  ASSIGN_OR_RETURN(const Candidate choice, chooser.Next(absl::MakeConstSpan(&checked.problem, 1)));
  inspect::Inquiry inquiry;
  inquiry.kind = Inspection::kDescribe;
  inquiry.kernel = checked.kernel->id;
  inquiry.inputs = InputsOf(checked.problem);
  inquiry.device = deps.engine->device(choice.device).properties().name;
  inquiry.device_index = choice.device;
  inquiry.row = choice.row->id;
  inquiry.chosen_because =
      WhyChosen(*deps.registry, *choice.row, choice.tuned.get(), checked.request.implementation());
  inquiry.request = std::move(bytes);
  // What follows in a message is merged with what came before: the child has nothing to choose.
  v1::DescribeRequest chosen;
  chosen.set_implementation(choice.row->implementation.name);
  chosen.AppendToString(&inquiry.request);
  return inquiry;
}

absl::StatusOr<std::string> AnswerDescribe(const Registry& registry, Device* device,
                                           const std::string& bytes) {
  CheckedDescribe checked;
  RETURN_IF_ERROR(Read(registry, bytes, &checked));
  ASSIGN_OR_RETURN(const Row* const chosen,
                   registry.Select(*checked.kernel, checked.request.implementation(),
                                   checked.problem, device->properties()));
  ASSIGN_OR_RETURN(
      const v1::DescribeResponse response,
      inspect::DescribePlan(*checked.kernel->op, chosen->implementation, checked.problem, device));
  return response.SerializeAsString();
}

}  // namespace warpcall
