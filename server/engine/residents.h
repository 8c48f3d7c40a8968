// Tensors that stay on a device between calls. A handle names a tensor for its owner. Jobs and
// calls hold references: Free, expiry, eviction and the loss of a device take the name away at
// once, and the memory goes with the last reference.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/op.h"
#include "server/engine/clock.h"
#include "server/engine/metrics_sink.h"
#include "server/runtime/device.h"
#include "server/system/housekeeper.h"

namespace warpcall {

// The kernel that copies tensors to devices and back.
inline constexpr char kCopyKernel[] = "identity";

using Sha256 = std::array<uint8_t, 32>;

// The principal that a tensor belongs to.
struct ResidentOwner {
  std::string name;                                         // empty: all callers that have no name
  int64_t bytes_max = std::numeric_limits<int64_t>::max();  // of its tensors, on all devices
};

// A tensor's memory on a device. Thread-safe.
class ResidentMemory {
 public:
  explicit ResidentMemory(size_t bytes) : bytes_(bytes) {}
  ResidentMemory(const ResidentMemory&) = delete;
  ResidentMemory& operator=(const ResidentMemory&) = delete;

  size_t bytes() const { return bytes_; }
  // Gets the memory by `allocate`, unless it is there. For a lane: the device may take its time.
  absl::Status Allocate(absl::FunctionRef<absl::StatusOr<Buffer>(size_t bytes)> allocate);
  // Null for zero bytes. REQUIRES: Allocate was OK.
  char* data() const { return static_cast<char*>(memory_.data()); }

 protected:
  void Release() { memory_ = Buffer(); }

 private:
  const size_t bytes_;
  absl::Mutex allocating_;
  Buffer memory_;  // written once, under `allocating_`, before anybody reads it
};

class Residents;

// A tensor's memory and its place on the books. Nothing writes it once the tensor has a name.
class ResidentContent : public ResidentMemory {
 public:
  ~ResidentContent();

  const TensorSpec& spec() const { return spec_; }
  int device() const { return device_; }  // position in the engine's list

 private:
  friend class Residents;
  ResidentContent(Residents* residents, std::string owner, TensorSpec spec, int device)
      : ResidentMemory(spec.bytes()),
        residents_(residents),
        owner_(std::move(owner)),
        spec_(std::move(spec)),
        device_(device) {}

  Residents* const residents_;
  const std::string owner_;
  const TensorSpec spec_;
  const int device_;
  int64_t reserved_bytes_ = 0;  // on the books of owner and device until the memory is back
  int64_t losses_ = 0;          // of the device's memory when the room was reserved
  // Guarded by Residents' mutex.
  int names_ = 0;
  int staying_names_ = 0;  // of tensors that are not evictable
};

using ResidentContentPtr = std::shared_ptr<ResidentContent>;

// A reference of a request, which uses the tensor: its time to live begins anew when the use ends.
// Outlived by its Residents.
class ResidentUse {
 public:
  ResidentUse() = default;
  // Null: it is of no tensor.
  ResidentContentPtr content() const;

 private:
  friend class Residents;
  struct Tensor;
  std::shared_ptr<Tensor> tensor_;  // ends the use
};

// Thread-safe.
class Residents {
 public:
  struct Options {
    Clock clock = MonotonicNs;
    std::function<int64_t()> unix_ns;                      // null: the system's clock
    int64_t ttl_ns = int64_t{600} * 1'000'000'000;         // where a tensor asks for none
    int64_t ttl_ns_max = int64_t{86'400} * 1'000'000'000;  // that one may ask for
    // True: a timer calls EndDue. False: the owner calls it.
    bool timer = true;
  };
  // Names of one owner: each costs some hundred bytes of the host's memory.
  static constexpr size_t kTensorsPerOwnerMax = 16'384;
  // Handles of one call: its NOT_FOUND names each of them, and clients take 8 KiB of trailers.
  static constexpr size_t kHandlesPerUseMax = 64;
  // Ended names that an owner can ask about, and how long.
  static constexpr size_t kEndedPerOwnerMax = 4'096;
  static constexpr int64_t kEndedNs = int64_t{24} * 3600 * 1'000'000'000;
  static constexpr size_t kLabelBytesMax = 256;

  explicit Residents(Options options);
  // REQUIRES: nobody holds a reference.
  ~Residents();
  Residents(const Residents&) = delete;
  Residents& operator=(const Residents&) = delete;

  struct Place {
    std::string device;
    DeviceKind kind = DeviceKind::kCpu;
    int64_t bytes_max = 0;
  };
  // The next device of the engine. REQUIRES: called before all others.
  void AddDevice(Place place);

  // Terms on which a tensor gets its name.
  struct Terms {
    int64_t ttl_ns = 0;  // 0: the server's
    std::string label;
    bool evictable = false;
    std::optional<Sha256> sha256;  // of the content, and found right
  };
  // INVALID_ARGUMENT names value and limit.
  absl::Status Check(const Terms& terms) const;

  // Room for a tensor, which stays reserved until the last reference goes. Evicts tensors that were
  // put as evictable, those unused for longest first. RESOURCE_EXHAUSTED names the limit, what is
  // held and when the next tensor expires. REQUIRES: a device of the engine.
  absl::StatusOr<ResidentContentPtr> Reserve(const ResidentOwner& owner, const TensorSpec& spec,
                                             int device);
  // The device for a tensor whose owner left the choice to the server: that of the owner's newest
  // tensor, or else the one with the most room: GPUs first, and healthy ones of them.
  int ChooseDevice(const ResidentOwner& owner,
                   absl::FunctionRef<bool(int device)> is_healthy) const;

  struct Named {
    std::string handle;  // 40 hexadecimal digits
    int64_t expires_unix_ns = 0;
  };
  // Gives a new name to content whose bytes are there. RESOURCE_EXHAUSTED for an owner of
  // kTensorsPerOwnerMax tensors; UNAVAILABLE where the device has been lost meanwhile.
  // REQUIRES: Check(terms) is OK.
  absl::StatusOr<Named> Name(const ResidentContentPtr& content, const Terms& terms);

  // Named content of the owner with this digest, type and shape; null: there is none. `device` < 0:
  // on any.
  ResidentContentPtr Find(absl::string_view owner, int device, const TensorSpec& spec,
                          const Sha256& sha256) const;

  // References for jobs, in the order of the handles; an empty handle is of no tensor, and where
  // all are, there is no reference. NOT_FOUND says why each missing one ended; LostHandles has the
  // same for programs. INVALID_ARGUMENT for more than kHandlesPerUseMax.
  absl::StatusOr<std::vector<ResidentUse>> Use(absl::string_view owner,
                                               absl::Span<const absl::string_view> handles);

  struct Freed {
    int64_t bytes = 0;  // of tensors whose content has no other name
    std::vector<std::string> unknown;
  };
  Freed Free(absl::string_view owner, absl::Span<const absl::string_view> handles);
  // Frees a tensor whose name nobody has learnt.
  void TakeBack(absl::string_view owner, absl::string_view handle);

  struct Listed {
    std::string handle;
    std::string label;
    int device = 0;
    TensorSpec spec;
    int64_t created_unix_ns = 0;
    int64_t expires_unix_ns = 0;
    int64_t uses = 0;
    bool evictable = false;
  };
  // The owner's tensors, oldest first.
  std::vector<Listed> List(absl::string_view owner);

  // Ends all tensors of a device whose memory has been lost for the `losses`th time. Does nothing
  // if it has been called for that loss, or for a later one.
  void Lose(int device, int64_t losses);
  // Ends tensors whose time is over.
  void EndDue();

  struct Usage {
    int64_t bytes_max = 0;
    int64_t bytes = 0;  // reserved, named or not
    int64_t tensors = 0;
    std::array<int64_t, kResidentEndCount> ended = {};
  };
  Usage usage(int device) const;

 private:
  friend class ResidentContent;
  using Tensor = ResidentUse::Tensor;
  using TensorPtr = std::shared_ptr<Tensor>;
  struct Owner;
  struct DeviceBooks {
    Place place;
    Usage usage;
    int64_t staying_bytes = 0;  // of content that has a name and that nobody may evict
    int64_t losses = 0;
  };
  // Tensors that lost their names; destroyed after the mutex is released.
  using Dropped = std::vector<TensorPtr>;

  Owner& OwnerOf(absl::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Owner* FindOwner(absl::string_view name) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckOwner(const ResidentOwner& owner, int64_t bytes, int device) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckDevice(int64_t bytes, int device) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // One limit, and how much of it is in use. Jobs hold what does not stay: it comes back with them.
  struct Limit {
    const char* name;
    int64_t bytes_max;
    int64_t held;
    int64_t staying;
  };
  absl::Status CheckLimit(const Limit& limit, int64_t bytes, int device) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Until the next idle tensor of the device may expire; negative: none is known.
  int64_t NextExpiryNs(int device) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Ends the names of idle evictable content of the device, unused for longest first, until that in
  // `dropped` makes room for `bytes` more. Ends none if all of it makes too little.
  void Evict(int device, int64_t bytes, Dropped* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A name has come (1), or it goes (-1).
  void CountName(const Tensor& tensor, int by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const TensorPtr& tensor, ResidentEnd why, Dropped* dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndDue(int64_t now_ns, Dropped* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const char* WhyLost(const Owner* owner, absl::string_view handle) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  int64_t ExpiresUnixNs(const Tensor& tensor) const;
  std::string NewHandle() const;
  void Schedule(Tensor* tensor, int64_t ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(const ResidentContent& content);
  void CheckInvariants() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::string start_;  // opens this server's handles
  mutable absl::Mutex mutex_;
  std::vector<DeviceBooks> devices_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::unique_ptr<Owner>> owners_ ABSL_GUARDED_BY(mutex_);
  // By the time to look at them again: they may have been used since. Holds every tensor once.
  absl::btree_set<std::pair<int64_t, Tensor*>> due_ ABSL_GUARDED_BY(mutex_);
  uint64_t created_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Timer> timer_;  // last: it uses the others
};

// "HANDLE why[,HANDLE why]" of a NOT_FOUND from Residents::Use: the trailer warpcall-lost-handles.
// `why` is a ResidentEndName, or "unknown".
std::optional<std::string> LostHandles(const absl::Status& status);

}  // namespace warpcall
