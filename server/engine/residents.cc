#include "server/engine/residents.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <tuple>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"

namespace warpcall {
namespace {

constexpr char kLostHandlesUrl[] = "warpcall.dev/lost-handles";
constexpr size_t kStartBytes = 4;
constexpr size_t kRandomBytes = 16;
constexpr size_t kHandleChars = 2 * (kStartBytes + kRandomBytes);
// A tensor that is looked at has often been used since.
constexpr int64_t kTimerNsMin = 50'000'000;
// An owner that waits for room asks again within this time.
constexpr int64_t kRoomPushbackMsMin = 100;
constexpr int64_t kRoomPushbackMsMax = 10'000;
// Tensors that an error looks at to find the next that expires.
constexpr int kExpiriesSeen = 64;
// Invariants are checked at each change while there are so few.
constexpr size_t kCheckedTensorsMax = 256;

std::string Hex(const void* bytes, size_t size) {
  return absl::BytesToHexString(absl::string_view(static_cast<const char*>(bytes), size));
}

std::string StartOfHandles() {
  const auto seconds = static_cast<uint32_t>(time(nullptr));
  return Hex(&seconds, sizeof(seconds));
}

bool IsHandle(absl::string_view text) {
  return text.size() == kHandleChars && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

// A name of content.
struct ResidentUse::Tensor {
  // True while no job uses it and its time is over.
  bool IsDue(int64_t now_ns) const { return active.load() == 0 && DueNs() <= now_ns; }
  int64_t DueNs() const { return SaturatingAdd(used_ns.load(), ttl_ns); }
  void BeginUse(int64_t now_ns) {
    active.fetch_add(1);
    uses.fetch_add(1);
    used_ns.store(now_ns);
  }
  void EndUse() {
    used_ns.store((*clock)());
    const int before = active.fetch_sub(1);
    WARPCALL_DCHECK(before > 0, before);
  }

  ResidentContentPtr content;
  std::string handle;
  std::string label;
  bool evictable = false;
  std::optional<Sha256> sha256;
  int64_t ttl_ns = 0;
  int64_t created_unix_ns = 0;
  uint64_t number = 0;  // in the order of creation
  const Clock* clock = nullptr;
  int64_t due_ns = 0;               // its place in Residents::due_
  std::atomic<int64_t> used_ns{0};  // last: when a use began or ended
  std::atomic<int64_t> uses{0};
  std::atomic<int> active{0};  // uses that have not ended
};

struct Residents::Owner {
  struct Ended {
    std::string handle;
    int64_t ns;
  };

  std::string name;
  int64_t bytes = 0;        // reserved
  int64_t named_bytes = 0;  // of content that has a name
  absl::flat_hash_map<std::string, TensorPtr> tensors;
  absl::btree_set<std::pair<Sha256, Tensor*>> by_sha256;
  std::deque<Ended> ended;  // oldest first
  absl::flat_hash_map<std::string, ResidentEnd> why_ended;
};

absl::Status ResidentMemory::Allocate(
    absl::FunctionRef<absl::StatusOr<Buffer>(size_t bytes)> allocate) {
  absl::MutexLock lock(&allocating_);
  if (memory_.data() != nullptr || bytes_ == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(memory_, allocate(bytes_));
  WARPCALL_CHECK(memory_.bytes() >= bytes_, memory_.bytes(), bytes_);
  return absl::OkStatus();
}

ResidentContent::~ResidentContent() {
  Release();
  residents_->GiveBack(*this);
}

ResidentContentPtr ResidentUse::content() const {
  return tensor_ == nullptr ? nullptr : tensor_->content;
}

Residents::Residents(Options options) : options_(std::move(options)), start_(StartOfHandles()) {
  WARPCALL_DCHECK(options_.ttl_ns > 0 && options_.ttl_ns <= options_.ttl_ns_max, options_.ttl_ns,
                  options_.ttl_ns_max);
  if (options_.timer) timer_.emplace("residents", [this] { EndDue(); });
}

Residents::~Residents() {
  if (timer_.has_value()) timer_->Stop();
  Dropped dropped;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [name, owner] : owners_)
      for (auto& [handle, tensor] : owner->tensors) {
        --tensor->content->names_;
        dropped.push_back(std::move(tensor));
      }
    owners_.clear();
  }
  dropped.clear();
  absl::MutexLock lock(&mutex_);
  for (const DeviceBooks& device : devices_)
    WARPCALL_CHECK(device.usage.bytes == 0, device.place.device, device.usage.bytes);
}

void Residents::AddDevice(Place place) {
  WARPCALL_DCHECK(place.bytes_max >= 0, place.bytes_max);
  absl::MutexLock lock(&mutex_);
  DeviceBooks& device = devices_.emplace_back();
  device.usage.bytes_max = place.bytes_max;
  device.place = std::move(place);
}

absl::Status Residents::Check(const Terms& terms) const {
  if (terms.ttl_ns < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("ttl_ns is ", terms.ttl_ns, "; 0 stands for the server's own, ",
                     Seconds(options_.ttl_ns), " s, and it is never negative"));
  if (terms.ttl_ns > options_.ttl_ns_max)
    return absl::InvalidArgumentError(
        absl::StrCat("ttl_ns is ", terms.ttl_ns, ", ", Seconds(terms.ttl_ns), " s; the limit is ",
                     Seconds(options_.ttl_ns_max), " s (resident_ttl_seconds_max)"));
  if (terms.label.size() > kLabelBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat("label has ", terms.label.size(), " bytes; the limit is ", kLabelBytesMax));
  return absl::OkStatus();
}

Residents::Owner& Residents::OwnerOf(absl::string_view name) {
  std::unique_ptr<Owner>& owner = owners_[std::string(name)];
  if (owner == nullptr) {
    owner = std::make_unique<Owner>();
    owner->name = std::string(name);
  }
  return *owner;
}

const Residents::Owner* Residents::FindOwner(absl::string_view name) const {
  const auto owner = owners_.find(name);
  return owner == owners_.end() ? nullptr : owner->second.get();
}

int64_t Residents::NextExpiryNs(int device) const {
  const int64_t now_ns = options_.clock();
  int seen = 0;
  for (const auto& [ns, tensor] : due_) {
    if (++seen > kExpiriesSeen) break;
    if (tensor->content->device() != device || tensor->active.load() > 0) continue;
    return std::max<int64_t>(tensor->DueNs() - now_ns, 0);
  }
  return -1;
}

absl::Status Residents::CheckLimit(const Limit& limit, int64_t bytes, int device) const {
  if (bytes <= limit.bytes_max - limit.held) return absl::OkStatus();
  if (bytes > limit.bytes_max)
    return RefuseFor(
        RejectReason::kQuota,
        absl::ResourceExhaustedError(absl::StrCat("the tensor has ", bytes, " bytes; the limit is ",
                                                  limit.bytes_max, " (", limit.name, ")")),
        kNeverRetry);
  const int64_t next_ns = NextExpiryNs(device);
  return RefuseFor(
      RejectReason::kQuota,
      absl::ResourceExhaustedError(absl::StrCat(
          "the tensor has ", bytes, " bytes, and tensors hold ", limit.held, " of ",
          limit.bytes_max, " (", limit.name, "); ",
          next_ns < 0
              ? "none of them is about to expire"
              : absl::StrCat("the next on ", devices_[static_cast<size_t>(device)].place.device,
                             " expires in ", Seconds(next_ns), " s, unless it is used"))),
      bytes <= limit.bytes_max - limit.staying ? kRoomPushbackMsMin
      : next_ns < 0                            ? kRoomPushbackMsMax
                    : std::clamp(next_ns / 1'000'000, kRoomPushbackMsMin, kRoomPushbackMsMax));
}

absl::Status Residents::CheckOwner(const ResidentOwner& owner, int64_t bytes, int device) const {
  const Owner* const known = FindOwner(owner.name);
  if (known == nullptr)
    return CheckLimit({"resident_bytes_max", owner.bytes_max, 0, 0}, bytes, device);
  if (known->tensors.size() >= kTensorsPerOwnerMax)
    return RefuseFor(RejectReason::kQuota,
                     absl::ResourceExhaustedError(
                         absl::StrCat(known->tensors.size(), " tensors of this principal are on ",
                                      "the server; the limit is ", kTensorsPerOwnerMax)),
                     kRoomPushbackMsMax);
  return CheckLimit({"resident_bytes_max", owner.bytes_max, known->bytes, known->named_bytes},
                    bytes, device);
}

absl::Status Residents::CheckDevice(int64_t bytes, int device) const {
  const DeviceBooks& books = devices_[static_cast<size_t>(device)];
  return CheckLimit({"resident_mib", books.usage.bytes_max, books.usage.bytes, books.staying_bytes},
                    bytes, device);
}

absl::StatusOr<ResidentContentPtr> Residents::Reserve(const ResidentOwner& owner,
                                                      const TensorSpec& spec, int device) {
  const auto bytes = static_cast<int64_t>(spec.bytes());
  ResidentContentPtr content(new ResidentContent(this, owner.name, spec, device));
  for (;;) {
    Dropped dropped;  // gives its memory back behind the lock
    absl::MutexLock lock(&mutex_);
    WARPCALL_CHECK(device >= 0 && static_cast<size_t>(device) < devices_.size(), device);
    EndDue(options_.clock(), &dropped);
    RETURN_IF_ERROR(CheckOwner(owner, bytes, device));
    DeviceBooks& books = devices_[static_cast<size_t>(device)];
    const absl::Status room = CheckDevice(bytes, device);
    if (room.ok()) {
      books.usage.bytes += bytes;
      OwnerOf(owner.name).bytes += bytes;
      content->reserved_bytes_ = bytes;
      content->losses_ = books.losses;
      return content;
    }
    if (bytes <= books.usage.bytes_max) Evict(device, bytes, &dropped);
    if (dropped.empty()) return room;
  }
}

void Residents::Evict(int device, int64_t bytes, Dropped* dropped) {
  const Usage& usage = devices_[static_cast<size_t>(device)].usage;
  int64_t lacking = usage.bytes + bytes - usage.bytes_max;
  for (const TensorPtr& tensor : *dropped)
    if (tensor->content->device() == device && tensor->content->names_ == 0)
      lacking -= tensor->content->reserved_bytes_;
  struct Idle {
    std::pair<int64_t, uint64_t> used;  // last by any name, and the newest of these
    std::vector<TensorPtr> names;
  };
  absl::flat_hash_map<const ResidentContent*, Idle> by_content;
  for (const auto& [name, owner] : owners_)
    for (const auto& [handle, tensor] : owner->tensors)
      if (tensor->content->device() == device && tensor->content->staying_names_ == 0 &&
          tensor->active.load() == 0) {
        Idle& content = by_content[tensor->content.get()];
        content.used = std::max(content.used, {tensor->used_ns.load(), tensor->number});
        content.names.push_back(tensor);
      }
  std::vector<Idle> idle;
  int64_t idle_bytes = 0;
  for (auto& [content, found] : by_content) {
    if (static_cast<int>(found.names.size()) < content->names_) continue;
    idle_bytes += content->reserved_bytes_;
    idle.push_back(std::move(found));
  }
  if (idle_bytes < lacking) return;
  std::sort(idle.begin(), idle.end(), [](const Idle& a, const Idle& b) { return a.used < b.used; });
  for (const Idle& content : idle) {
    if (lacking <= 0) break;
    lacking -= content.names[0]->content->reserved_bytes_;
    for (const TensorPtr& tensor : content.names) End(tensor, ResidentEnd::kEvicted, dropped);
  }
}

int Residents::ChooseDevice(const ResidentOwner& owner,
                            absl::FunctionRef<bool(int device)> is_healthy) const {
  absl::MutexLock lock(&mutex_);
  if (const Owner* const known = FindOwner(owner.name); known != nullptr) {
    const Tensor* newest = nullptr;
    for (const auto& [handle, tensor] : known->tensors)
      if (newest == nullptr || tensor->number > newest->number) newest = tensor.get();
    if (newest != nullptr) return newest->content->device();
  }
  const DeviceBooks* const first = devices_.data();
  const auto room = [&](const DeviceBooks& device) {
    return std::tuple(device.place.kind != DeviceKind::kCpu,
                      is_healthy(static_cast<int>(&device - first)),
                      device.usage.bytes_max - device.usage.bytes);
  };
  const auto most = std::max_element(
      devices_.begin(), devices_.end(),
      [&](const DeviceBooks& a, const DeviceBooks& b) { return room(a) < room(b); });
  WARPCALL_CHECK(most != devices_.end());
  return static_cast<int>(most - devices_.begin());
}

std::string Residents::NewHandle() const {
  uint8_t random[kRandomBytes];
  ssize_t got;
  do {
    got = getrandom(random, sizeof(random), 0);
  } while (got < 0 && errno == EINTR);
  WARPCALL_CHECK(got == static_cast<ssize_t>(sizeof(random)), got);
  return absl::StrCat(start_, Hex(random, sizeof(random)));
}

absl::StatusOr<Residents::Named> Residents::Name(const ResidentContentPtr& content,
                                                 const Terms& terms) {
  WARPCALL_CHECK(content != nullptr && content->residents_ == this);
  WARPCALL_DCHECK(Check(terms).ok(), terms.ttl_ns, terms.label.size());
  auto tensor = std::make_shared<Tensor>();
  tensor->content = content;
  tensor->handle = NewHandle();
  tensor->label = terms.label;
  tensor->evictable = terms.evictable;
  tensor->sha256 = terms.sha256;
  tensor->ttl_ns = terms.ttl_ns == 0 ? options_.ttl_ns : terms.ttl_ns;
  tensor->clock = &options_.clock;
  tensor->used_ns.store(options_.clock());
  tensor->created_unix_ns =
      options_.unix_ns == nullptr ? absl::GetCurrentTimeNanos() : options_.unix_ns();
  absl::MutexLock lock(&mutex_);
  DeviceBooks& device = devices_[static_cast<size_t>(content->device_)];
  if (content->losses_ != device.losses)
    return RefuseFor(RejectReason::kDeviceLost,
                     absl::UnavailableError(absl::StrCat(device.place.device, " was lost")));
  Owner& owner = OwnerOf(content->owner_);
  if (owner.tensors.size() >= kTensorsPerOwnerMax)
    return CheckOwner({owner.name}, 0, content->device_);
  tensor->number = created_++;
  CountName(*tensor, 1);
  owner.tensors.emplace(tensor->handle, tensor);
  if (tensor->sha256.has_value()) owner.by_sha256.insert({*tensor->sha256, tensor.get()});
  Schedule(tensor.get(), tensor->DueNs());
  StartTimer();
  if (WARPCALL_DCHECK_IS_ON) CheckInvariants();
  return Named{tensor->handle, ExpiresUnixNs(*tensor)};
}

ResidentContentPtr Residents::Find(absl::string_view owner, int device, const TensorSpec& spec,
                                   const Sha256& sha256) const {
  absl::MutexLock lock(&mutex_);
  const Owner* const known = FindOwner(owner);
  if (known == nullptr) return nullptr;
  auto same = known->by_sha256.lower_bound({sha256, nullptr});
  for (; same != known->by_sha256.end() && same->first == sha256; ++same) {
    const ResidentContentPtr& content = same->second->content;
    if ((device < 0 || content->device() == device) && content->spec() == spec) return content;
  }
  return nullptr;
}

const char* Residents::WhyLost(const Owner* owner, absl::string_view handle) const {
  if (owner != nullptr)
    if (const auto why = owner->why_ended.find(handle); why != owner->why_ended.end())
      return ResidentEndName(why->second);
  // A handle of a server that ran before this one.
  if (IsHandle(handle) && handle.substr(0, start_.size()) != start_)
    return ResidentEndName(ResidentEnd::kLost);
  return "unknown";
}

absl::StatusOr<std::vector<ResidentUse>> Residents::Use(
    absl::string_view owner, absl::Span<const absl::string_view> handles) {
  const auto given = static_cast<size_t>(
      absl::c_count_if(handles, [](absl::string_view handle) { return !handle.empty(); }));
  if (given == 0) return std::vector<ResidentUse>();
  if (given > kHandlesPerUseMax)
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", given, " handles; the limit is ", kHandlesPerUseMax));
  std::vector<ResidentUse> uses(handles.size());
  std::vector<std::string> lost;
  bool any_is_none = false;
  Dropped dropped;
  absl::MutexLock lock(&mutex_);
  const int64_t now_ns = options_.clock();
  EndDue(now_ns, &dropped);
  const Owner* const known = FindOwner(owner);
  for (size_t i = 0; i < handles.size(); ++i) {
    if (handles[i].empty()) continue;
    if (known != nullptr)
      if (const auto tensor = known->tensors.find(handles[i]); tensor != known->tensors.end()) {
        tensor->second->BeginUse(now_ns);
        uses[i].tensor_ = {tensor->second.get(),
                           [held = tensor->second](Tensor*) { held->EndUse(); }};
        continue;
      }
    // No text of the client's in the trailer but what a handle has.
    const bool is_handle = IsHandle(handles[i]);
    any_is_none |= !is_handle;
    lost.push_back(absl::StrCat(is_handle ? handles[i] : "?", " ", WhyLost(known, handles[i])));
  }
  if (lost.empty()) return uses;
  const std::string text = absl::StrJoin(lost, ",");
  absl::Status status = absl::NotFoundError(absl::StrCat(
      lost.size() == 1 ? "a tensor is" : "tensors are", " not on the server: ", text,
      any_is_none ? absl::StrCat("; ? is no handle: one has ", kHandleChars, " of 0-9a-f") : ""));
  status.SetPayload(kLostHandlesUrl, absl::Cord(text));
  return status;
}

Residents::Freed Residents::Free(absl::string_view owner,
                                 absl::Span<const absl::string_view> handles) {
  Freed freed;
  Dropped dropped;
  absl::MutexLock lock(&mutex_);
  EndDue(options_.clock(), &dropped);
  const auto known = owners_.find(owner);
  for (const absl::string_view handle : handles) {
    if (known != owners_.end())
      if (const auto found = known->second->tensors.find(handle);
          found != known->second->tensors.end()) {
        const TensorPtr tensor = found->second;
        if (tensor->content->names_ == 1) freed.bytes += tensor->content->reserved_bytes_;
        End(tensor, ResidentEnd::kFreed, &dropped);
        continue;
      }
    freed.unknown.emplace_back(handle);
  }
  return freed;
}

void Residents::TakeBack(absl::string_view owner, absl::string_view handle) {
  Free(owner, absl::MakeConstSpan(&handle, 1));
}

std::vector<Residents::Listed> Residents::List(absl::string_view owner) {
  Dropped dropped;
  std::vector<TensorPtr> tensors;  // described behind the lock
  {
    absl::MutexLock lock(&mutex_);
    EndDue(options_.clock(), &dropped);
    if (const Owner* const known = FindOwner(owner); known != nullptr)
      for (const auto& [handle, tensor] : known->tensors) tensors.push_back(tensor);
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorPtr& a, const TensorPtr& b) { return a->number < b->number; });
  std::vector<Listed> list;
  for (const TensorPtr& tensor : tensors)
    list.push_back({tensor->handle, tensor->label, tensor->content->device(),
                    tensor->content->spec(), tensor->created_unix_ns, ExpiresUnixNs(*tensor),
                    tensor->uses.load(), tensor->evictable});
  return list;
}

void Residents::Lose(int device, int64_t losses) {
  Dropped dropped;
  absl::MutexLock lock(&mutex_);
  DeviceBooks& books = devices_[static_cast<size_t>(device)];
  if (losses <= books.losses) return;
  books.losses = losses;
  std::vector<TensorPtr> lost;
  for (const auto& [name, owner] : owners_)
    for (const auto& [handle, tensor] : owner->tensors)
      if (tensor->content->device() == device) lost.push_back(tensor);
  for (const TensorPtr& tensor : lost) End(tensor, ResidentEnd::kLost, &dropped);
}

void Residents::CountName(const Tensor& tensor, int by) {
  ResidentContent& content = *tensor.content;
  DeviceBooks& books = devices_[static_cast<size_t>(content.device_)];
  const bool had_name = content.names_ > 0;
  const bool stayed = content.staying_names_ > 0;
  content.names_ += by;
  if (!tensor.evictable) content.staying_names_ += by;
  books.usage.tensors += by;
  if ((content.names_ > 0) != had_name)
    OwnerOf(content.owner_).named_bytes += by * content.reserved_bytes_;
  if ((content.staying_names_ > 0) != stayed) books.staying_bytes += by * content.reserved_bytes_;
}

void Residents::End(const TensorPtr& tensor, ResidentEnd why, Dropped* dropped) {
  const int64_t now_ns = options_.clock();
  Owner& owner = OwnerOf(tensor->content->owner_);
  const size_t erased = owner.tensors.erase(tensor->handle);
  WARPCALL_CHECK(erased == 1 && tensor->content->names_ > 0, tensor->handle,
                 tensor->content->names_);
  if (tensor->sha256.has_value()) owner.by_sha256.erase({*tensor->sha256, tensor.get()});
  const size_t scheduled = due_.erase({tensor->due_ns, tensor.get()});
  WARPCALL_CHECK(scheduled == 1, tensor->handle, tensor->due_ns);
  CountName(*tensor, -1);
  ++devices_[static_cast<size_t>(tensor->content->device_)].usage.ended[static_cast<size_t>(why)];
  owner.ended.push_back({tensor->handle, now_ns});
  owner.why_ended[tensor->handle] = why;
  while (owner.ended.size() > kEndedPerOwnerMax || now_ns - owner.ended.front().ns > kEndedNs) {
    owner.why_ended.erase(owner.ended.front().handle);
    owner.ended.pop_front();
  }
  dropped->push_back(tensor);
  if (WARPCALL_DCHECK_IS_ON) CheckInvariants();
}

void Residents::EndDue(int64_t now_ns, Dropped* dropped) {
  while (!due_.empty() && due_.begin()->first <= now_ns) {
    Tensor* const tensor = due_.begin()->second;
    if (tensor->IsDue(now_ns)) {
      const Owner& owner = OwnerOf(tensor->content->owner_);
      End(TensorPtr(owner.tensors.find(tensor->handle)->second), ResidentEnd::kExpired, dropped);
    } else {
      due_.erase(due_.begin());
      Schedule(tensor, std::max(tensor->DueNs(), SaturatingAdd(now_ns, kTimerNsMin)));
    }
  }
}

void Residents::Schedule(Tensor* tensor, int64_t ns) {
  tensor->due_ns = ns;
  due_.insert({ns, tensor});
}

void Residents::EndDue() {
  Dropped dropped;
  absl::MutexLock lock(&mutex_);
  EndDue(options_.clock(), &dropped);
  StartTimer();
}

void Residents::StartTimer() {
  if (!timer_.has_value() || due_.empty()) return;
  timer_->Start(absl::Nanoseconds(std::max(due_.begin()->first - options_.clock(), kTimerNsMin)));
}

int64_t Residents::ExpiresUnixNs(const Tensor& tensor) const {
  const int64_t unix_ns =
      options_.unix_ns == nullptr ? absl::GetCurrentTimeNanos() : options_.unix_ns();
  return SaturatingAdd(unix_ns, tensor.DueNs() - options_.clock());
}

void Residents::GiveBack(const ResidentContent& content) {
  absl::MutexLock lock(&mutex_);
  Usage& usage = devices_[static_cast<size_t>(content.device_)].usage;
  WARPCALL_CHECK(usage.bytes >= content.reserved_bytes_ && content.names_ == 0, usage.bytes,
                 content.reserved_bytes_, content.names_);
  usage.bytes -= content.reserved_bytes_;
  if (const auto owner = owners_.find(content.owner_); owner != owners_.end())
    owner->second->bytes -= content.reserved_bytes_;
}

Residents::Usage Residents::usage(int device) const {
  absl::MutexLock lock(&mutex_);
  return devices_[static_cast<size_t>(device)].usage;
}

void Residents::CheckInvariants() const {
  if (due_.size() > kCheckedTensorsMax) return;
  std::vector<int64_t> tensors(devices_.size());
  int64_t owned = 0;
  for (const auto& [name, owner] : owners_) {
    WARPCALL_CHECK(owner->named_bytes >= 0 && owner->named_bytes <= owner->bytes,
                   owner->named_bytes, owner->bytes);
    WARPCALL_CHECK(owner->ended.size() == owner->why_ended.size() &&
                       owner->tensors.size() <= kTensorsPerOwnerMax,
                   owner->ended.size(), owner->why_ended.size());
    owned += owner->bytes;
    for (const auto& [handle, tensor] : owner->tensors) {
      WARPCALL_CHECK(tensor->content->names_ > 0 && due_.contains({tensor->due_ns, tensor.get()}),
                     handle);
      ++tensors[static_cast<size_t>(tensor->content->device_)];
    }
  }
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Usage& usage = devices_[i].usage;
    WARPCALL_CHECK(usage.tensors == tensors[i] && usage.bytes <= usage.bytes_max, usage.tensors,
                   tensors[i], usage.bytes, usage.bytes_max);
    WARPCALL_CHECK(devices_[i].staying_bytes >= 0 && devices_[i].staying_bytes <= usage.bytes,
                   devices_[i].staying_bytes, usage.bytes);
    owned -= usage.bytes;
  }
  WARPCALL_CHECK(owned == 0, owned);
}

std::optional<std::string> LostHandles(const absl::Status& status) {
  const absl::optional<absl::Cord> text = status.GetPayload(kLostHandlesUrl);
  if (!text.has_value()) return std::nullopt;
  return std::string(*text);
}

}  // namespace warpcall
