#include "kernels/fault/picky.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/compiled/program.h"
#include "kernels/fault/copy.h"
#include "kernels/plan.h"

namespace warpcall {
namespace {

bool IsTaken(const Problem& problem) {
  const int64_t elements_max = std::get<int64_t>(problem.attributes[0]);
  return elements_max == 0 || problem.inputs[0].elements() <= elements_max;
}

absl::StatusOr<PlanPtr> PlanOrRefuse(const Problem& problem, const PlanContext& context) {
  if (IsTaken(problem)) return PlanBy(fault::Copy)(problem, context);
  return absl::UnimplementedError(
      absl::StrCat("there is no way to copy ", problem.inputs[0].elements(), " elements"));
}

absl::StatusOr<PlanPtr> PlanOrFailToCompile(const Problem& problem, const PlanContext& context) {
  if (IsTaken(problem)) return PlanBy(fault::Copy)(problem, context);
  return compiled::AsCompileError(absl::InternalError("error: expected a kernel"));
}

}  // namespace

const Op& PickyOp() {
  static const Op* const op =
      new Op{.name = "picky",
             .summary = "copies x by the first row that will: for tests only",
             .input_names = {"x"},
             .attributes = {{.name = "elements_max",
                             .summary = "rows that refuse take no more; 0: any number",
                             .default_value = int64_t{0},
                             .allowed_values = {}}},
             .infer_outputs = fault::InferCopy,
             .work = fault::CopyWork,
             .independence = Independence::kElements};
  return *op;
}

std::vector<Implementation> PickyCpuRows() {
  Implementation refusing = {
      .name = "refusing",
      .family = Family::kLibrary,
      .device_kind = DeviceKind::kCpu,
      .summary = "for tests only",
      .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
      .supports = SupportsAll,
      .plan = PlanOrRefuse};
  Implementation not_compiling = refusing;
  not_compiling.name = "not_compiling";
  not_compiling.slow_to_plan = true;
  not_compiling.plan = PlanOrFailToCompile;
  Implementation taking = refusing;
  taking.name = "taking";
  taking.family = Family::kReference;
  taking.plan = PlanBy(fault::Copy);
  return {refusing, not_compiling, taking};
}

}  // namespace warpcall
