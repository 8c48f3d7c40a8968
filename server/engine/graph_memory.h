// Device memory in which a graph finds itself again: the same place whenever it comes, so that a
// recording of it can be replayed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "absl/status/statusor.h"
#include "kernels/op.h"
#include "server/runtime/device.h"

namespace warpcall {

// Keeps memory of one stream for the graphs that were used last. Used by one thread.
class GraphMemory {
 public:
  // `stream` outlives it.
  GraphMemory(Stream* stream, size_t bytes_max) : stream_(stream), bytes_max_(bytes_max) {}

  // One graph's memory.
  struct Place {
    Problem problem;
    Buffer operands;
    Buffer workspace;

    size_t bytes() const { return operands.bytes() + workspace.bytes(); }
  };

  // The place of a graph whose operands take so many bytes; valid until the next call. Null: they
  // do not fit the limit, or the device has no memory left.
  Place* Find(const Problem& problem, size_t operand_bytes);
  // The workspace of the place that Find has just returned, which stays. Null: as for Find.
  void* Workspace(size_t bytes);

  size_t used_bytes() const { return used_bytes_; }

 private:
  // Gives back what was not used for longest until so many more bytes fit beside the first place.
  bool MakeRoom(size_t bytes);
  Buffer Allocate(size_t bytes);

  Stream* const stream_;
  const size_t bytes_max_;
  std::list<Place> places_;  // the last used first
  size_t used_bytes_ = 0;
};

}  // namespace warpcall
