#include "server/engine/repeats.h"

#include <algorithm>

#include "proto/common/check.h"

namespace warpcall {
namespace {

// Staging hands out its lowest ranges first, so requests of a few clients and shapes share a few
// places.
constexpr size_t kEntriesMax = 64;
// Recording takes as long as some ten launches.
constexpr int kRunsBeforeRecording = 4;

}  // namespace

Repeats::Entry* Repeats::Find(const PlanPtr& plan, const Operands& operands) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.plan == plan && entry.operands.outputs == operands.outputs &&
           entry.operands.inputs == operands.inputs;
  });
  return found == entries_.end() ? nullptr : &*found;
}

Repeats::Entry* Repeats::Add(const PlanPtr& plan, const Operands& operands) {
  Entry entry = {plan, operands, 0, false, -1, 0};
  if (entries_.size() < kEntriesMax) return &entries_.emplace_back(std::move(entry));
  const auto oldest =
      std::min_element(entries_.begin(), entries_.end(),
                       [](const Entry& a, const Entry& b) { return a.last_used < b.last_used; });
  if (oldest->recording >= 0) stream_->Forget(oldest->recording);
  *oldest = std::move(entry);
  return &*oldest;
}

int Repeats::RecordingOf(const PlanPtr& plan, const Operands& operands, int runs,
                         absl::FunctionRef<absl::StatusOr<int>()> record) {
  WARPCALL_DCHECK(plan != nullptr && entries_.size() <= kEntriesMax, entries_.size());
  Entry* entry = Find(plan, operands);
  if (entry == nullptr) entry = Add(plan, operands);
  entry->last_used = ++now_;
  if (entry->is_tried) return entry->recording;
  // At one place twice at least: memory that graphs take from each other is not worth a recording.
  if (++entry->runs >= 2 && std::max(entry->runs, runs) >= kRunsBeforeRecording) {
    entry->is_tried = true;
    // A launch that cannot be recorded is enqueued each time, as before.
    const absl::StatusOr<int> recording = record();
    if (recording.ok()) entry->recording = *recording;
  }
  return entry->recording;
}

}  // namespace warpcall
