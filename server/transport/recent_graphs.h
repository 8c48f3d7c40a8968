// Graphs that were requested lately. A caller sends one again and again, with other data: what such
// requests share is read and checked once.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/common/lru_cache.h"
#include "kernels/op.h"
#include "server/transport/graph_request.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall {

// A request without its tensors' data, read and checked.
struct GraphHeader {
  // Inputs that are handles have the types and shapes of their tensors.
  v1::ExecuteGraphRequest message;
  std::vector<std::string> labels;  // by input, for errors
  GraphWishes wishes;               // texts belong to `message`
  Problem problem;
};

// By the bytes of the message without its tensors' data, handles included. A handle names one
// tensor for all time, so what was read of it stays true; that it still exists, and belongs to the
// caller, is for each request to find out. Thread-safe.
class RecentGraphs {
 public:
  // Each takes some times its bytes, so all of them take a few MiB.
  static constexpr size_t kGraphsMax = 64;
  static constexpr size_t kHeaderBytesMax = 16 << 10;

  // Null: not known.
  std::shared_ptr<const GraphHeader> Find(const std::string& header) {
    if (header.size() > kHeaderBytesMax) return nullptr;
    const absl::MutexLock lock(&mutex_);
    const std::shared_ptr<const GraphHeader>* const found = known_.Find(header);
    return found == nullptr ? nullptr : *found;
  }
  // Does nothing for a header of more than kHeaderBytesMax.
  void Keep(const std::string& header, std::shared_ptr<const GraphHeader> read) {
    if (header.size() > kHeaderBytesMax) return;
    // Destroyed when the lock is free again.
    std::optional<std::shared_ptr<const GraphHeader>> gone;
    const absl::MutexLock lock(&mutex_);
    gone = known_.Insert(header, std::move(read));
  }

 private:
  absl::Mutex mutex_;
  LruCache<std::string, std::shared_ptr<const GraphHeader>> known_ ABSL_GUARDED_BY(mutex_){
      kGraphsMax};
};

}  // namespace warpcall
