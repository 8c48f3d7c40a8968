#include "server/engine/preparations.h"

#include "absl/algorithm/container.h"
#include "kernels/graph/step_graph.h"
#include "proto/common/check.h"

namespace warpcall {

std::shared_ptr<Preparation> Preparations::Of(const Row& row, const Problem& problem,
                                              int64_t restarts) {
  WARPCALL_DCHECK(row.id >= 0 && restarts >= 0, row.id, restarts);
  const bool is_slow = problem.graph == nullptr
                           ? row.implementation.slow_to_plan
                           : absl::c_any_of(problem.graph->steps(), [](const Step& step) {
                               return step.row != nullptr && step.row->implementation.slow_to_plan;
                             });
  if (!is_slow) return nullptr;
  const Key key = {row.id, restarts, problem};
  absl::MutexLock lock(&mutex_);
  if (const std::shared_ptr<Preparation>* const known = known_.Find(key)) return *known;
  auto preparation = std::make_shared<Preparation>();
  known_.Insert(key, preparation);
  return preparation;
}

}  // namespace warpcall
