#include "server/engine/graph_memory.h"

#include <algorithm>
#include <utility>

#include "proto/common/check.h"

namespace warpcall {

GraphMemory::Place* GraphMemory::Find(const Problem& problem, size_t operand_bytes) {
  // Equal problems differ in what they bring along: an operand may stay on the device in one alone.
  const auto known = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
    return place.operands.bytes() == operand_bytes && place.problem == problem;
  });
  if (known != places_.end()) {
    places_.splice(places_.begin(), places_, known);
    return &places_.front();
  }
  places_.push_front({problem, Buffer(), Buffer()});
  Buffer operands;
  if (MakeRoom(operand_bytes)) operands = Allocate(operand_bytes);
  if (operands.bytes() < operand_bytes) {
    places_.pop_front();
    return nullptr;
  }
  places_.front().operands = std::move(operands);
  used_bytes_ += operand_bytes;
  return &places_.front();
}

void* GraphMemory::Workspace(size_t bytes) {
  WARPCALL_CHECK(!places_.empty(), bytes);
  Place& place = places_.front();
  if (place.workspace.bytes() >= bytes) return place.workspace.data();
  used_bytes_ -= place.workspace.bytes();
  place.workspace = Buffer();
  if (!MakeRoom(bytes)) return nullptr;
  Buffer workspace = Allocate(bytes);
  if (workspace.bytes() < bytes) return nullptr;
  place.workspace = std::move(workspace);
  used_bytes_ += bytes;
  return place.workspace.data();
}

bool GraphMemory::MakeRoom(size_t bytes) {
  while (places_.size() > 1 && used_bytes_ + bytes > bytes_max_) {
    used_bytes_ -= places_.back().bytes();
    places_.pop_back();
  }
  return used_bytes_ + bytes <= bytes_max_;
}

// Empty where the device has no memory left.
Buffer GraphMemory::Allocate(size_t bytes) {
  absl::StatusOr<Buffer> memory = stream_->AllocateMemory(bytes);
  return memory.ok() ? *std::move(memory) : Buffer();
}

}  // namespace warpcall
