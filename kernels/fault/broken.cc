#include "kernels/fault/broken.h"

#include <unistd.h>

#include <cstdlib>

#include "kernels/check/cases.h"
#include "kernels/compiled/program.h"
#include "kernels/fault/copy.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"

namespace warpcall {
namespace {

absl::Status ExecuteIllegalInstruction(const Problem&, const Operands&, const LaunchContext&) {
  asm volatile("ud2");
  return absl::OkStatus();
}

absl::Status NeverEnd(const Problem&, const Operands&, const LaunchContext&) {
  for (volatile bool on = true; on;) {
  }
  return absl::OkStatus();
}

// Right but for the last byte.
absl::Status CopyWrongly(const Problem& problem, const Operands& operands,
                         const LaunchContext& context) {
  const absl::Status copied = fault::Copy(problem, operands, context);
  const size_t bytes = problem.outputs[0].bytes();
  if (bytes > 0) static_cast<unsigned char*>(operands.outputs[0])[bytes - 1] ^= 0x01;
  return copied;
}

Implementation Row(const char* name, Family family, LaunchFunction launch) {
  return {.name = name,
          .family = family,
          .device_kind = DeviceKind::kCpu,
          .summary = "for tests only",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = PlanBy(launch)};
}

absl::Status Refuse(const Problem&, const DeviceProperties&) {
  return absl::UnimplementedError("its kernels were not compiled");
}

// A row whose build, or machine, lacks a dependency.
Implementation AbsentRow(const char* name, Family family) {
  Implementation row = Row(name, family, fault::Copy);
  row.supports = Refuse;
  return row;
}

Implementation UncompilableRow() {
  Implementation row = Row("uncompilable", Family::kCompiled, fault::Copy);
  row.plan = [](const Problem&, const PlanContext&) -> absl::StatusOr<PlanPtr> {
    return compiled::AsCompileError(absl::InternalError("error: expected a kernel"));
  };
  return row;
}

constexpr char kLateGate[] = "WARPCALL_TEST_LATE_GATE";

// A row whose library takes long to initialise: a test decides when it goes on.
Implementation LateRow() {
  Implementation row = Row("late", Family::kLibrary, fault::Copy);
  row.slow_to_plan = true;
  row.plan = [](const Problem& problem, const PlanContext& context) -> absl::StatusOr<PlanPtr> {
    while (access(std::getenv(kLateGate), F_OK) == 0) usleep(1000);
    return PlanBy(fault::Copy)(problem, context);
  };
  return row;
}

OpCases Cases() {
  OpCases cases = identity::Cases();
  cases.cases.clear();
  cases.quick = {{"quick", {{16}}, {}, Fill::kNormal}};
  cases.sized = nullptr;
  return cases;
}

}  // namespace

const Op& BrokenOp() {
  static const Op* const op = new Op{.name = "broken",
                                     .summary = "copies x, if the row works at all: for tests only",
                                     .input_names = {"x"},
                                     .attributes = {},
                                     .infer_outputs = fault::InferCopy,
                                     .work = fault::CopyWork,
                                     .definition = &identity::kDefinition,
                                     .cases = Cases};
  return *op;
}

std::vector<Implementation> BrokenCpuRows() {
  std::vector<Implementation> rows = {
      Row("illegal_instruction", Family::kCpu, ExecuteIllegalInstruction),
      Row("endless", Family::kLibrary, NeverEnd),
      Row("wrong", Family::kManual, CopyWrongly),
      AbsentRow("absent", Family::kTriton),
      AbsentRow("no_compiler", Family::kCompiled),
      UncompilableRow(),
      Row("plain_copy", Family::kReference, fault::Copy)};
  if (std::getenv(kLateGate) != nullptr) rows.insert(rows.end() - 1, LateRow());
  return rows;
}

}  // namespace warpcall
