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
  ASSIGN_OR_RETURN(const Engine::Choice choice,
                   deps.engine->Choose(*checked.kernel,
                                       {.implementation = checked.request.implementation(),
                                        .device = checked.request.device(),
                                        .may_use = may_use},
                                       absl::MakeConstSpan(&checked.problem, 1)));
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
  const Op& op = *checked.kernel->op;
  ASSIGN_OR_RETURN(const Row* const chosen,
                   registry.Select(*checked.kernel, checked.request.implementation(),
                                   checked.problem, device->properties()));
  const Implementation& row = chosen->implementation;
  inspect::Description description;
  ASSIGN_OR_RETURN(description, inspect::DescribePlan(row, checked.problem, device));
  v1::DescribeResponse response;
  response.set_implementation(row.name);
  response.set_family(FamilyName(row.family));
  response.set_device(device->properties().name);
  *response.mutable_launch() = ToProto(op.work(checked.problem), description.shape);
  response.set_registers_per_thread(description.shape.registers_per_thread);
  response.set_shared_memory_bytes(description.shape.shared_memory_bytes);
  response.set_local_memory_bytes(description.shape.local_memory_bytes);
  response.set_workspace_bytes(description.workspace_bytes);
  for (SourceFile& file : description.files) {
    v1::SourceFile* const shown = response.add_files();
    shown->set_name(std::move(file.name));
    shown->set_language(std::move(file.language));
    shown->set_text(std::move(file.text));
  }
  response.set_tolerance(inspect::ToleranceOf(op, row, checked.problem.outputs[0].data_type));
  response.set_grid(description.grid);
  response.set_block(description.block);
  return response.SerializeAsString();
}

}  // namespace warpcall
