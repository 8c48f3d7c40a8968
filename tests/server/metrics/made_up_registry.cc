#include "tests/server/metrics/made_up_registry.h"

#include "kernels/plan.h"

namespace warpcall::testing {
namespace {

absl::StatusOr<PlanPtr> NoPlan(const Problem&, const PlanContext&) {
  return absl::UnimplementedError("made up");
}

Implementation MakeRow(const char* name, DeviceKind kind, std::vector<DataType> types) {
  Implementation row = {};
  row.name = name;
  row.family = kind == DeviceKind::kCpu ? Family::kCpu : Family::kCuda;
  row.device_kind = kind;
  row.summary = "";
  row.data_types = std::move(types);
  row.supports = SupportsAll;
  row.plan = NoPlan;
  return row;
}

Registry* MakeRegistry() {
  static const Op alpha = {"alpha", "", {"x"}, {}, nullptr, nullptr};
  static const Op beta = {"beta", "", {"x"}, {}, nullptr, nullptr};
  auto* const registry = new Registry();
  registry->Add(alpha,
                {MakeRow("tiled", DeviceKind::kCuda, {DataType::kFloat32, DataType::kBFloat16}),
                 MakeRow("plain", DeviceKind::kCpu,
                         {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16})});
  registry->Add(beta, {MakeRow("plain", DeviceKind::kCpu, {DataType::kFloat32})});
  return registry;
}

}  // namespace

const Registry& MadeUpRegistry() {
  static const Registry& registry = *MakeRegistry();  // never destroyed
  return registry;
}

}  // namespace warpcall::testing
