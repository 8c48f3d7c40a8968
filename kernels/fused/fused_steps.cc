#include "kernels/fused/fused_steps.h"

#include <algorithm>

#include "proto/common/check.h"

namespace warpcall::fused {
namespace {

using expression::Node;
using expression::Pass;

// Assigns places to the wide nodes of passes, which keep them from pass to pass.
class Placing {
 public:
  Placing(const Program& program, absl::Span<const Pass> passes)
      : nodes_(program.graph.nodes), last_use_(nodes_.size(), -1), places_(nodes_.size(), -1) {
    ForEachUse(passes, [&](int operand, int step) { last_use_[Index(operand)] = step; });
    last_use_.back() = -1;  // the result is needed when all is done
    int step = 0;
    for (const Pass& pass : passes) {
      for (const int node : pass.wide) {
        GiveBackOperands(node, step++);
        places_[Index(node)] = Take();
      }
      for (const int node : pass.reductions) GiveBackOperands(node, step);
      ++step;
    }
  }

  const std::vector<int>& places() const { return places_; }
  int count() const { return count_; }

 private:
  static size_t Index(int node) { return static_cast<size_t>(node); }

  // One step for each wide node and one for the reductions of a pass.
  template <typename Use>
  void ForEachUse(absl::Span<const Pass> passes, const Use& use) const {
    int step = 0;
    const auto uses = [&](int node) {
      const Node& found = nodes_[Index(node)];
      for (int i = 0; i < expression::OperandCount(found.op); ++i) use(found.operands[i], step);
    };
    for (const Pass& pass : passes) {
      for (const int node : pass.wide) {
        uses(node);
        ++step;
      }
      for (const int node : pass.reductions) uses(node);
      ++step;
    }
  }

  void GiveBackOperands(int node, int step) {
    const Node& found = nodes_[Index(node)];
    for (int i = 0; i < expression::OperandCount(found.op); ++i) {
      const size_t operand = Index(found.operands[i]);
      if (places_[operand] < 0 || last_use_[operand] != step) continue;
      free_.push_back(places_[operand]);
      last_use_[operand] = -1;  // once, even if it is two operands
    }
  }

  int Take() {
    if (free_.empty()) return count_++;
    const int place = free_.back();
    free_.pop_back();
    return place;
  }

  const std::vector<Node>& nodes_;
  std::vector<int> last_use_;
  std::vector<int> places_;
  std::vector<int> free_;
  int count_ = 0;
};

}  // namespace

Places PlacesOf(const Program& program, const expression::Schedule& schedule,
                expression::Keeping keeping) {
  WARPCALL_DCHECK(!schedule.passes.empty());
  Places places;
  if (keeping == expression::Keeping::kRow) {
    const Placing placing(program, schedule.passes);
    places.of_pass.assign(schedule.passes.size(), placing.places());
    places.count = placing.count();
    return places;
  }
  for (const Pass& pass : schedule.passes) {
    const Placing placing(program, absl::MakeConstSpan(&pass, 1));
    places.of_pass.push_back(placing.places());
    places.count = std::max(places.count, placing.count());
  }
  return places;
}

}  // namespace warpcall::fused
