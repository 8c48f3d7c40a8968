#include "server/transport/inference/shared_regions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall::oip {
namespace {

constexpr size_t kNameBytesMax = 256;

absl::Status UnknownRegion(absl::string_view name) {
  return absl::NotFoundError(absl::StrCat("Unable to find system shared memory region: '", name,
                                          "' is not registered by this caller"));
}

absl::Status CheckName(const std::string& name) {
  if (!name.empty() && name.size() <= kNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a shared memory region's name has ", name.size(),
                                                 " bytes; it must have 1 to ", kNameBytesMax));
}

}  // namespace

void SharedRegions::DropIdle() {
  const auto idlest = std::min_element(
      owners_.begin(), owners_.end(),
      [](const auto& a, const auto& b) { return a.second.used_ns < b.second.used_ns; });
  if (idlest == owners_.end() || clock_() - idlest->second.used_ns < kIdleNs) return;
  count_ -= idlest->second.regions.size();
  owners_.erase(idlest);
}

absl::Status SharedRegions::Register(uint64_t owner, const Wanted& wanted) {
  RETURN_IF_ERROR(CheckName(wanted.name));
  absl::MutexLock lock(&mutex_);
  if (const auto found = owners_.find(owner); found != owners_.end()) {
    const size_t registered = found->second.regions.size();
    if (found->second.regions.contains(wanted.name))
      return absl::AlreadyExistsError(
          absl::StrCat("shared memory region '", wanted.name, "' already in manager"));
    if (registered >= kRegionsPerOwnerMax)
      return absl::ResourceExhaustedError(absl::StrCat("this caller has ", registered,
                                                       " regions of shared memory; the limit is ",
                                                       kRegionsPerOwnerMax));
  }
  if (count_ >= MappedRegion::kRegionsMax) DropIdle();
  Region region{wanted.key, wanted.offset, nullptr};
  ASSIGN_OR_RETURN(region.memory, MappedRegion::Map(wanted.key, wanted.offset, wanted.bytes));
  Owner& of = owners_[owner];
  of.used_ns = clock_();
  of.regions.emplace(wanted.name, std::move(region));
  ++count_;
  return absl::OkStatus();
}

void SharedRegions::Unregister(uint64_t owner, const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  auto& regions = found->second.regions;
  const size_t before = regions.size();
  if (name.empty())
    regions.clear();
  else
    regions.erase(name);
  count_ -= before - regions.size();
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
