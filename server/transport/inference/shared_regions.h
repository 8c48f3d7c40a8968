// The shared memory that callers have registered. Each caller has names of his own: nobody else
// sees or uses them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"
#include "server/transport/inference/mapped_region.h"
#include "server/transport/inference/parameters.h"

namespace warpcall::oip {

// Thread-safe. gRPC does not say when a connection ends, so what a caller leaves behind stays until
// others need the room: then who was idle for kIdleNs or more loses all that he registered.
class SharedRegions {
 public:
  static constexpr size_t kRegionsPerOwnerMax = 64;
  static constexpr int64_t kIdleNs = int64_t{300} * 1'000'000'000;

  struct Wanted {
    std::string name;
    std::string key;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  struct Region {
    std::string key;
    uint64_t offset = 0;
    std::shared_ptr<MappedRegion> memory;
  };
  struct NamedRegion {
    std::string name;
    Region region;
  };

  explicit SharedRegions(Clock clock) : clock_(std::move(clock)) {}

  // ALREADY_EXISTS when the owner has the name, RESOURCE_EXHAUSTED when he or all have too many,
  // otherwise as MappedRegion::Map.
  absl::Status Register(uint64_t owner, const Wanted& wanted);
  // Requests that use it keep it until they are done. Empty: all of the owner's; OK when there is
  // none.
  void Unregister(uint64_t owner, const std::string& name);
  // All of the owner's, or the one that is named: NOT_FOUND where there is none.
  absl::StatusOr<std::vector<NamedRegion>> Find(uint64_t owner, const std::string& name);
  // NOT_FOUND names the region, INVALID_ARGUMENT a range that does not lie in it.
  absl::StatusOr<std::shared_ptr<MappedRegion>> Use(uint64_t owner, const RegionUse& use);

 private:
  struct Owner {
    std::map<std::string, Region, std::less<>> regions;
    int64_t used_ns = 0;
  };
  // Makes room, if somebody's regions are idle.
  void DropIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock clock_;
  absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, Owner> owners_ ABSL_GUARDED_BY(mutex_);
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace warpcall::oip
