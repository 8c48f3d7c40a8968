#include "server/judge/messages.h"

#include "absl/strings/str_join.h"
#include "server/inspect/describe.h"

namespace warpcall::judge {
namespace {

v1::PushProblem ToProto(const Problem& problem, const Op& op) {
  v1::PushProblem pushed;
  for (const TensorSpec& input : problem.inputs) {
    v1::TensorSpec* spec = pushed.add_inputs();
    spec->set_data_type(static_cast<v1::DataType>(input.data_type));
    spec->mutable_shape()->Assign(input.dims.begin(), input.dims.end());
  }
  for (size_t i = 0; i < problem.attributes.size(); ++i)
    (*pushed.mutable_attributes())[op.attributes[i].name] = inspect::ToProto(problem.attributes[i]);
  return pushed;
}

}  // namespace

v1::PushEvent ToEvent(const absl::StatusOr<compiled::CudaCode>& code, DataType type,
                      const std::string& target) {
  v1::PushEvent event;
  v1::PushCompiled& told = *event.mutable_compiled();
  told.set_data_type(static_cast<v1::DataType>(type));
  told.set_arch(target);
  told.set_log(code.ok() ? code->log : std::string(code.status().message()));
  if (!code.ok()) return event;
  told.set_kernel(absl::StrJoin(code->kernels, " "));
  if (!code->ptx.empty()) *told.add_files() = inspect::ToProto({"kernel.ptx", "ptx", code->ptx});
  return event;
}

void SetShape(const LaunchShape& shape, v1::PushCompiled* compiled) {
  compiled->set_registers_per_thread(shape.registers_per_thread);
  compiled->set_shared_memory_bytes(shape.shared_memory_bytes);
  compiled->set_local_memory_bytes(shape.local_memory_bytes);
  compiled->set_theoretical_occupancy(shape.theoretical_occupancy);
}

v1::PushEvent ToEvent(const Problem& problem, const Op& op, const TrialResult& result) {
  v1::PushEvent event;
  v1::PushChecked& checked = *event.mutable_checked();
  *checked.mutable_problem() = ToProto(problem, op);
  checked.set_passed(result.finding == Finding::kPassed);
  checked.set_max_error(result.max_error);
  checked.set_checked_elements(result.checked_elements);
  if (result.first.has_value()) {
    v1::PushMismatch& first = *checked.mutable_first();
    first.mutable_index()->Assign(result.first->index.begin(), result.first->index.end());
    first.set_got(result.first->got);
    first.set_expected(result.first->expected);
    first.set_bound(result.first->bound);
  }
  // The first wrong element says the same in figures.
  if (!result.first.has_value()) checked.set_detail(result.detail);
  checked.set_max_absolute_error(result.max_absolute_error);
  checked.set_max_relative_error(result.max_relative_error);
  checked.set_fill(result.fill);
  checked.mutable_histogram()->Assign(result.histogram.begin(), result.histogram.end());
  return event;
}

v1::PushEvent ToEvent(const Problem& problem, const Op& op, const TimeResult& result) {
  v1::PushEvent event;
  v1::PushTimed& timed = *event.mutable_timed();
  *timed.mutable_problem() = ToProto(problem, op);
  timed.mutable_results()->Assign(result.results.begin(), result.results.end());
  timed.set_ceiling_bytes_per_second(result.ceiling_bytes_per_second);
  timed.set_flops_ceiling(result.flops_ceiling);
  timed.set_floor_ns(result.floor_ns);
  timed.set_unstable(result.unstable);
  timed.set_cold(result.cold);
  return event;
}

}  // namespace warpcall::judge
