#include "server/transport/inference/shared_regions.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"

namespace warpcall::oip {
namespace {

constexpr size_t kNameBytesMax = 256;
// Regions come and go with processes.
constexpr int64_t kRoomPushbackMs = 1'000;

absl::Status UnknownRegion(absl::string_view name) {
  return absl::NotFoundError(absl::StrCat("Unable to find system shared memory region: '", name,
                                          "' is not registered by this caller"));
}

absl::Status CheckName(const std::string& name) {
  if (!name.empty() && name.size() <= kNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a shared memory region's name has ", name.size(),
                                                 " bytes; it must have 1 to ", kNameBytesMax));
}

// A mapping, and its place among its user's.
class Placed {
 public:
  Placed(std::shared_ptr<MappedRegion> memory, std::shared_ptr<std::atomic<size_t>> places)
      : memory_(std::move(memory)), places_(std::move(places)) {
    ++*places_;
  }
  ~Placed() {
    memory_.reset();
    --*places_;
  }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

  MappedRegion* memory() const { return memory_.get(); }

 private:
  std::shared_ptr<MappedRegion> memory_;
  const std::shared_ptr<std::atomic<size_t>> places_;
};

absl::Status TooMany(absl::string_view who, size_t taken, size_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat(who, " has ", taken, " regions of shared memory; the limit is ", limit));
}

}  // namespace

SharedRegions::Places SharedRegions::PlacesOf(const std::string& user) {
  if (const auto found = places_.find(user); found != places_.end()) return found->second;
  for (auto at = places_.begin(); at != places_.end();) {
    const auto next = std::next(at);
    if (*at->second == 0) places_.erase(at);
    at = next;
  }
  return places_[user] = std::make_shared<std::atomic<size_t>>(0);
}

void SharedRegions::MakeRoom(const std::string* user) {
  const auto concerns = [user](const Owner& owner) {
    return user == nullptr || owner.caller.user == *user;
  };
  const size_t before = owners_.size();
  auto idlest = owners_.end();
  for (auto at = owners_.begin(); at != owners_.end();) {
    const auto owner = at++;
    if (!concerns(owner->second)) continue;
    if (has_ended_(owner->second.caller)) {
      owners_.erase(owner);
    } else if (idlest == owners_.end() || owner->second.used_ns < idlest->second.used_ns) {
      idlest = owner;
    }
  }
  if (owners_.size() < before || idlest == owners_.end()) return;
  if (clock_() - idlest->second.used_ns >= kIdleNs) owners_.erase(idlest);
}

absl::Status SharedRegions::CheckLimits(const Caller& caller, const std::string& name) {
  if (const auto found = owners_.find(caller.id); found != owners_.end()) {
    const auto& regions = found->second.regions;
    if (regions.contains(name))
      return absl::AlreadyExistsError(
          absl::StrCat("shared memory region '", name, "' already in manager"));
    if (regions.size() >= kRegionsPerOwnerMax)
      return WithRetryPushback(TooMany("this caller", regions.size(), kRegionsPerOwnerMax),
                               kNeverRetry);
  }
  const Places places = PlacesOf(caller.user);
  if (*places >= kRegionsPerUserMax) MakeRoom(&caller.user);
  if (const size_t taken = *places; taken >= kRegionsPerUserMax)
    return WithRetryPushback(TooMany("this caller's user", taken, kRegionsPerUserMax),
                             kRoomPushbackMs);
  return absl::OkStatus();
}

absl::Status SharedRegions::Register(const Caller& caller, const Wanted& wanted) {
  RETURN_IF_ERROR(CheckName(wanted.name));
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckLimits(caller, wanted.name));
  auto mapped = MappedRegion::Map(wanted.key, wanted.offset, wanted.bytes);
  if (absl::IsResourceExhausted(mapped.status())) {
    MakeRoom(nullptr);
    mapped = MappedRegion::Map(wanted.key, wanted.offset, wanted.bytes);
  }
  if (absl::IsResourceExhausted(mapped.status()))
    return WithRetryPushback(mapped.status(), kRoomPushbackMs);
  RETURN_IF_ERROR(mapped.status());

  const auto placed = std::make_shared<Placed>(*std::move(mapped), PlacesOf(caller.user));
  Owner& of = owners_[caller.id];
  of.caller = caller;
  of.used_ns = clock_();
  of.regions.emplace(wanted.name, Region{wanted.key, wanted.offset, {placed, placed->memory()}});
  return absl::OkStatus();
}

void SharedRegions::Unregister(uint64_t owner, const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  auto& regions = found->second.regions;
  if (name.empty())
    regions.clear();
  else
    regions.erase(name);
  if (regions.empty()) owners_.erase(found);
}

absl::StatusOr<std::vector<SharedRegions::NamedRegion>> SharedRegions::Find(
    uint64_t owner, const std::string& name) {
  absl::MutexLock lock(&mutex_);
  std::vector<NamedRegion> all;
  if (const auto found = owners_.find(owner); found != owners_.end())
    for (const auto& [region_name, region] : found->second.regions)
      if (name.empty() || name == region_name) all.push_back({region_name, region});
  if (all.empty() && !name.empty()) return UnknownRegion(name);
  return all;
}

absl::StatusOr<std::shared_ptr<MappedRegion>> SharedRegions::Use(uint64_t owner,
                                                                 const RegionUse& use) {
  absl::MutexLock lock(&mutex_);
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return UnknownRegion(use.region);
  const auto region = found->second.regions.find(use.region);
  if (region == found->second.regions.end()) return UnknownRegion(use.region);
  const uint64_t size = region->second.memory->bytes();
  if (use.offset > size || use.bytes > size - use.offset)
    return absl::InvalidArgumentError(
        absl::StrCat("Invalid offset + byte size for shared memory region: '", use.region,
                     "': ", use.bytes, " bytes at offset ", use.offset, ", and it has ", size));
  found->second.used_ns = clock_();
  return region->second.memory;
}

}  // namespace warpcall::oip
