#include "kernels/fault/held.h"

#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <variant>

#include "kernels/fault/copy.h"
#include "kernels/plan.h"

namespace warpcall {
namespace {

// Indices in the order of the op's attributes.
enum Attribute : size_t { kGate, kFlops };

absl::Status CopyWhenGateOpens(const Problem& problem, const Operands& operands,
                               const LaunchContext& context) {
  const std::string& gate = std::get<std::string>(problem.attributes[kGate]);
  while (access(gate.c_str(), F_OK) == 0) {
    if (IsSet(context.stop)) return absl::OkStatus();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return fault::Copy(problem, operands, context);
}

}  // namespace

const Op& HeldOp() {
  static const Op* const op =
      new Op{.name = "held",
             .summary = "copies x when its gate is open: for tests only",
             .input_names = {"x"},
             .attributes = {{.name = "gate",
                             .summary = "a path: the row waits while a file of that name exists",
                             .default_value = std::string(),
                             .allowed_values = {}},
                            {.name = "flops",
                             .summary = "what the work is reckoned at",
                             .default_value = int64_t{0},
                             .allowed_values = {}}},
             .infer_outputs = fault::InferCopy,
             .work = [](const Problem& problem) {
               return Work{.bytes = 2 * static_cast<int64_t>(problem.inputs[0].bytes()),
                           .flops = std::get<int64_t>(problem.attributes[kFlops])};
             }};
  return *op;
}

std::vector<Implementation> HeldCpuRows() {
  return {{.name = "gated",
           .family = Family::kReference,
           .device_kind = DeviceKind::kCpu,
           .summary = "for tests only",
           .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
           .supports = SupportsAll,
           .plan = PlanBy(CopyWhenGateOpens)}};
}

}  // namespace warpcall
