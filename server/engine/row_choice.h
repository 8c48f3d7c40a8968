// Which row runs a problem: by what was measured of its class, or else by the op's order.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/registry.h"
#include "server/engine/plan_refusals.h"
#include "server/engine/tuning_table.h"

namespace warpcall {

struct RowQuestion {
  const Kernel* kernel = nullptr;    // of the registry, perhaps with fewer rows
  absl::string_view implementation;  // empty, "auto", a row or a family
  // That differ in size alone: a row must run each of them. The first, at least, is there, and its
  // class decides.
  absl::Span<const Problem> problems;
  int device = 0;                          // as TuningTable numbers them
  const PlanRefusals* refusals = nullptr;  // of that device; null: nothing is known
};

struct RowChoice {
  const Row* row = nullptr;
  // By which the row was chosen; null: by the op's order, or by its name.
  std::shared_ptr<const TunedClass> tuned;
};

// As Registry::Select; never a row whose result was outside its tolerance for the class of one of
// the problems, nor, unless it is asked for by its own name, one that has refused to plan one:
// those refuse with that reason.
absl::StatusOr<RowChoice> ChooseRow(const Registry& registry, const TuningTable& table,
                                    const RowQuestion& question, const DeviceProperties& device);

}  // namespace warpcall
