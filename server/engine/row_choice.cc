#include "server/engine/row_choice.h"

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

using Classes = absl::InlinedVector<std::shared_ptr<const TunedClass>, 2>;

// OK, or what has been found out about the row that `supports` could not tell.
absl::Status CheckTried(const Classes& classes, const RowQuestion& question, const Row& row) {
  if (question.refusals != nullptr && question.implementation != row.implementation.name)
    for (const Problem& problem : question.problems)
      RETURN_IF_ERROR(question.refusals->Check(row, problem));
  for (const std::shared_ptr<const TunedClass>& known : classes)
    for (const WrongRow& wrong : known->wrong)
      if (wrong.row == row.id)
        return absl::UnimplementedError(
            absl::StrCat("its result for problems of this class was measured to be ",
                         wrong.max_error, " times as far off as its tolerance allows; see Tune"));
  return absl::OkStatus();
}

// Null: none of those that were measured will do.
const Row* FastestMeasured(const Registry& registry, const Classes& classes,
                           const RowQuestion& question, const DeviceProperties& device) {
  for (const RightRow& measured : classes.front()->right) {
    const Row& row = registry.rows()[static_cast<size_t>(measured.row)];
    if (absl::c_linear_search(question.kernel->rows, row.id) &&
        Registry::Matches(row, question.implementation) &&
        CheckTried(classes, question, row).ok() &&
        absl::c_all_of(question.problems, [&](const Problem& problem) {
          return Registry::CheckServes(row, question.implementation, problem, device).ok();
        }))
      return &row;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<RowChoice> ChooseRow(const Registry& registry, const TuningTable& table,
                                    const RowQuestion& question, const DeviceProperties& device) {
  const Kernel& kernel = *question.kernel;
  Classes classes;
  bool first_is_known = false;
  for (const Problem& problem : question.problems) {
    std::shared_ptr<const TunedClass> known = table.Find(kernel, problem, question.device);
    if (known == nullptr) continue;
    first_is_known |= &problem == &question.problems.front();
    classes.push_back(std::move(known));
  }
  RowChoice choice;
  if (first_is_known) {
    choice.row = FastestMeasured(registry, classes, question, device);
    if (choice.row != nullptr) {
      // A row's name leaves nothing to choose.
      if (question.implementation != choice.row->implementation.name)
        choice.tuned = std::move(classes.front());
      return choice;
    }
  }
  ASSIGN_OR_RETURN(
      choice.row,
      registry.Select(kernel,
                      {question.implementation, question.problems,
                       [&](const Row& row) { return CheckTried(classes, question, row); }},
                      device));
  return choice;
}

}  // namespace warpcall
