#include "tests/server/engine/simulation_residents.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "server/engine/refusal.h"

namespace warpcall::testing {
namespace {

// Copies of the engine's: a tensor whose time is over goes within kLookNs.
constexpr int64_t kLookNs = 50'000'000;
constexpr int64_t kPushbackMsMin = 100;

}  // namespace

int64_t ResidentsOracle::HeldOn(int device) const {
  int64_t bytes = 0;
  for (const Content& content : contents_)
    if (content.device == device && content.names + content.users > 0) bytes += content.bytes;
  return bytes;
}

int64_t ResidentsOracle::HeldBy(uint64_t owner) const {
  int64_t bytes = 0;
  for (const Content& content : contents_)
    if (content.owner == owner && content.names + content.users > 0) bytes += content.bytes;
  return bytes;
}

int64_t ResidentsOracle::LiveOn(int device) const {
  return absl::c_count_if(names_, [device](const Name& name) {
    return !name.end.has_value() && name.content->device == device;
  });
}

bool ResidentsOracle::IsOverdue(const Name& name, int64_t by_ns) const {
  return name.users == 0 && now_ns_ - name.used_ns >= name.ttl_ns + by_ns;
}

int64_t ResidentsOracle::StayingOn(int device) const {
  std::set<const Content*> staying;
  for (const Name& name : names_)
    if (!name.end.has_value() && !name.evictable && name.content->device == device)
      staying.insert(name.content);
  int64_t bytes = 0;
  for (const Content* content : staying) bytes += content->bytes;
  return bytes;
}

int64_t ResidentsOracle::NamedBy(uint64_t owner) const {
  int64_t bytes = 0;
  for (const Content& content : contents_)
    if (content.owner == owner && content.names > 0) bytes += content.bytes;
  return bytes;
}

bool ResidentsOracle::Evict(int device, int64_t bytes) {
  std::map<Content*, std::vector<Name*>> idle;
  for (Name& name : names_)
    if (!name.end.has_value() && name.evictable && name.users == 0 &&
        name.content->device == device)
      idle[name.content].push_back(&name);
  int64_t idle_bytes = 0;
  // By the last use of any name, and by creation where these are at the same time.
  std::map<std::pair<int64_t, uint64_t>, std::vector<Name*>> next;
  for (const auto& [content, names] : idle) {
    if (static_cast<int>(names.size()) < content->names) continue;
    std::pair<int64_t, uint64_t> used;
    for (const Name* name : names) used = std::max(used, {name->used_ns, name->number});
    next[used] = names;
    idle_bytes += content->bytes;
  }
  if (bytes <= 0 || idle_bytes < bytes) return false;
  for (const auto& [used, names] : next) {
    if (bytes <= 0) break;
    bytes -= names[0]->content->bytes;
    for (Name* name : names) End(name, ResidentEnd::kEvicted);
  }
  return true;
}

ResidentsOracle::Content* ResidentsOracle::Reserve(uint64_t owner, int64_t bytes, int device,
                                                   ResidentContentPtr* reserved) {
  Reconcile();
  const bool owner_may = HeldBy(owner) + bytes <= limits_.owner_bytes_max;
  absl::StatusOr<ResidentContentPtr> room = residents_.Reserve(
      {OwnerName(owner), limits_.owner_bytes_max}, {DataType::kFloat32, {bytes / 4}}, device);
  const auto lacking = [&] { return HeldOn(device) + bytes - limits_.device_bytes_max; };
  while (owner_may && Evict(device, lacking())) {
  }
  if (room.ok() != (owner_may && lacking() <= 0))
    fail_(absl::StrCat(bytes, " bytes find room: ", room.status().ToString()));
  const bool comes_back = owner_may ? StayingOn(device) + bytes <= limits_.device_bytes_max
                                    : NamedBy(owner) + bytes <= limits_.owner_bytes_max;
  if (!room.ok() && comes_back && RetryPushbackMs(room.status()) != kPushbackMsMin)
    fail_(absl::StrCat("room that jobs hold is far away: ", room.status().ToString()));
  if (!room.ok()) return nullptr;
  *reserved = *std::move(room);
  contents_.push_back({device, owner, bytes});
  contents_.back().users = 1;
  contents_.back().may_be_lost = contents_.back().is_after_loss = broken_[device];
  return &contents_.back();
}

void ResidentsOracle::EndWriting(Content* content, ResidentContentPtr* reserved, int names,
                                 const Residents::Terms& terms) {
  for (int i = 0; i < names; ++i) {
    const absl::StatusOr<Residents::Named> named = residents_.Name(*reserved, terms);
    if (named.ok() ? content->is_lost : !content->may_be_lost)
      fail_(absl::StrCat("a name: ", named.status().ToString()));
    if (!named.ok()) break;
    names_.push_back(
        {named->handle, names_.size(), content, terms.evictable, terms.ttl_ns, now_ns_});
    ++content->names;
  }
  reserved->reset();
  --content->users;
}

bool ResidentsOracle::Use(Name* name, uint64_t owner, std::vector<ResidentUse>* uses) {
  Reconcile();
  const absl::string_view handle = name->handle;
  auto used = residents_.Use(OwnerName(owner), absl::MakeConstSpan(&handle, 1));
  const bool is_owner = name->content->owner == owner;
  const bool right = is_owner && !name->end.has_value();
  if (used.ok() != right) fail_(absl::StrCat("a use: ", used.status().ToString()));
  if (!used.ok()) {
    const char* const why =
        is_owner && name->end.has_value() ? ResidentEndName(*name->end) : "unknown";
    if (LostHandles(used.status()) != absl::StrCat(handle, " ", why))
      fail_(absl::StrCat("not for being ", why, ": ", used.status().ToString()));
    return false;
  }
  *uses = *std::move(used);
  ++name->users;
  ++name->content->users;
  name->used_ns = now_ns_;
  return true;
}

void ResidentsOracle::EndUse(Name* name, std::vector<ResidentUse>* uses) {
  uses->clear();
  --name->users;
  --name->content->users;
  name->used_ns = now_ns_;
}

void ResidentsOracle::Free(Name* name, uint64_t owner) {
  Reconcile();
  const absl::string_view handle = name->handle;
  const Residents::Freed freed = residents_.Free(OwnerName(owner), absl::MakeConstSpan(&handle, 1));
  const bool right = name->content->owner == owner && !name->end.has_value();
  const int64_t bytes = right && name->content->names == 1 ? name->content->bytes : 0;
  if (freed.bytes != bytes || freed.unknown.size() != (right ? 0 : 1))
    fail_(absl::StrCat("Free gives back ", freed.bytes, " bytes, not ", bytes));
  if (right) End(name, ResidentEnd::kFreed);
}

int64_t ResidentsOracle::evictions() const {
  int64_t count = 0;
  for (const auto& ended : ended_) count += ended[static_cast<size_t>(ResidentEnd::kEvicted)];
  return count;
}

void ResidentsOracle::EndDue() {
  residents_.EndDue();
  Reconcile();
}

void ResidentsOracle::Breaks(int device) {
  broken_[device] = true;
  for (Content& content : contents_)
    if (content.device == device) content.may_be_lost = true;
}

void ResidentsOracle::Lost() {
  for (Content& content : contents_)
    if (broken_[content.device] && !content.is_after_loss) content.is_lost = true;
  for (Name& name : names_)
    if (!name.end.has_value() && broken_[name.content->device]) End(&name, ResidentEnd::kLost);
}

void ResidentsOracle::Mends(int device) {
  Lost();
  broken_[device] = false;
  for (Content& content : contents_)
    if (content.device == device) content.is_after_loss = false;
}

void ResidentsOracle::End(Name* name, ResidentEnd why) {
  name->end = why;
  --name->content->names;
  ++ended_[name->content->device][static_cast<size_t>(why)];
}

void ResidentsOracle::Reconcile() {
  for (uint64_t owner = 0; owner < kOwnersMax; ++owner)
    for (const Residents::Listed& listed : residents_.List(OwnerName(owner))) {
      const auto name =
          absl::c_find_if(names_, [&](const Name& n) { return n.handle == listed.handle; });
      if (name == names_.end() || name->end.has_value() || name->content->owner != owner)
        return fail_("a tensor is listed that has ended or was another's");
      if (IsOverdue(*name, kLookNs)) return fail_("a tensor stays though its time is over");
      name->is_listed = true;
    }
  for (Name& name : names_)
    if (!name.end.has_value() && !std::exchange(name.is_listed, false)) CheckGone(&name);
}

void ResidentsOracle::CheckGone(Name* name) {
  const absl::string_view handle = name->handle;
  const auto used =
      residents_.Use(OwnerName(name->content->owner), absl::MakeConstSpan(&handle, 1));
  const std::string why = LostHandles(used.status()).value_or("");
  const auto is = [&](ResidentEnd end) {
    return why == absl::StrCat(handle, " ", ResidentEndName(end));
  };
  if (is(ResidentEnd::kExpired) && IsOverdue(*name, 0)) return End(name, ResidentEnd::kExpired);
  if (is(ResidentEnd::kLost) && broken_[name->content->device])
    return End(name, ResidentEnd::kLost);
  fail_(absl::StrCat("a tensor has ended for no reason: ", why));
}

void ResidentsOracle::Compare(int devices) {
  for (int device = 0; device < devices; ++device) {
    // A lane may have reported the loss of its device.
    if (residents_.usage(device).tensors != LiveOn(device)) Reconcile();
    const Residents::Usage usage = residents_.usage(device);
    if (usage.tensors != LiveOn(device) || usage.bytes != HeldOn(device))
      fail_(absl::StrCat("device ", device, " holds ", usage.tensors, " tensors of ", usage.bytes,
                         " bytes; owners and requests have ", LiveOn(device), " of ",
                         HeldOn(device)));
    if (usage.bytes > limits_.device_bytes_max)
      fail_(absl::StrCat("device ", device, " holds ", usage.bytes, " bytes: over its limit"));
    if (!absl::c_equal(usage.ended, ended_[device]))
      fail_(absl::StrCat("device ", device, " counts other ends than came"));
  }
  for (uint64_t owner = 0; owner < kOwnersMax; ++owner)
    if (HeldBy(owner) > limits_.owner_bytes_max)
      fail_(absl::StrCat("owner ", owner, " holds ", HeldBy(owner), " bytes: over its limit"));
}

}  // namespace warpcall::testing
