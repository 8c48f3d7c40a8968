// The shared memory that callers have registered. Each caller has names of his own: nobody else
// sees or uses them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
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

// Thread-safe. gRPC does not say when a connection ends, so a caller's regions stay until their
// places are needed: by the caller's user at his limit, by anybody when all places are taken. Then
// callers whose connections have ended lose their regions; where there is none, the caller that was
// idle for the longest time does, if that is kIdleNs or more.
class SharedRegions {
 public:
  static constexpr size_t kRegionsPerOwnerMax = 64;
  // A region has its place until it is unregistered and no request uses it any more.
  static constexpr size_t kRegionsPerUserMax = MappedRegion::kRegionsMax / 4;
  static constexpr int64_t kIdleNs = int64_t{300} * 1'000'000'000;

  struct Caller {
    uint64_t id = 0;   // Principal::id
    std::string user;  // the user to whose limit all of the user's callers count
    std::string peer;  // the caller's only connection, or Unix user; empty: neither
  };
  // Returns true if all of the caller's connections have ended. Called with the registry locked.
  using HasEnded = std::function<bool(const Caller&)>;
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

  SharedRegions(Clock clock, HasEnded has_ended)
      : clock_(std::move(clock)), has_ended_(std::move(has_ended)) {}

  // Returns ALREADY_EXISTS when the caller has the name, RESOURCE_EXHAUSTED when the caller, the
  // caller's user or all have too many, otherwise as MappedRegion::Map.
  absl::Status Register(const Caller& caller, const Wanted& wanted);
  // Requests that use it keep it until they are done. Empty: all of the owner's; OK when there is
  // none.
  void Unregister(uint64_t owner, const std::string& name);
  // All of the owner's, or the one that is named: NOT_FOUND where there is none.
  absl::StatusOr<std::vector<NamedRegion>> Find(uint64_t owner, const std::string& name);
  // NOT_FOUND names the region, INVALID_ARGUMENT a range that does not lie in it.
  absl::StatusOr<std::shared_ptr<MappedRegion>> Use(uint64_t owner, const RegionUse& use);

 private:
  using Places = std::shared_ptr<std::atomic<size_t>>;
  struct Owner {
    Caller caller;
    std::map<std::string, Region, std::less<>> regions;
    int64_t used_ns = 0;
  };
  // How many places the user has.
  Places PlacesOf(const std::string& user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckLimits(const Caller& caller, const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops regions of callers that have ended or are idle: of this user, or, if null, of all.
  void MakeRoom(const std::string* user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock clock_;
  const HasEnded has_ended_;
  absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, Owner> owners_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Places> places_ ABSL_GUARDED_BY(mutex_);  // by user
};

}  // namespace warpcall::oip
