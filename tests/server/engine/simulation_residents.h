// Rules of tensors that stay, whatever happens in whatever order. Memory is held for tensors that
// have names or users, and for nothing else. Names end for a reason. No quota is crossed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/engine/residents.h"

namespace warpcall::testing {

class ResidentsOracle {
 public:
  static constexpr int kDevicesMax = 2;
  static constexpr int kOwnersMax = 4;

  // A tensor's memory.
  struct Content {
    int device = 0;
    uint64_t owner = 0;
    int64_t bytes = 0;
    uint64_t mark = 0;  // stands in each KiB of it, once it is written
    int names = 0;
    int users = 0;               // requests that read or write it
    bool may_be_lost = false;    // its device was broken at some time since its room was reserved
    bool is_after_loss = false;  // its device has been broken since before that time
    bool is_lost = false;
  };
  struct Name {
    std::string handle;
    uint64_t number = 0;  // in the order of creation
    Content* content = nullptr;
    bool evictable = false;
    int64_t ttl_ns = 0;
    int64_t used_ns = 0;
    int users = 0;
    std::optional<ResidentEnd> end = {};
    bool is_listed = false;
  };
  struct Limits {
    int64_t device_bytes_max = 0;
    int64_t owner_bytes_max = 0;
  };

  // All arguments outlive the oracle. `fail` is called with each violation.
  ResidentsOracle(Residents* residents, Limits limits, const int64_t* now_ns,
                  std::function<void(absl::string_view)> fail)
      : residents_(*residents), limits_(limits), now_ns_(*now_ns), fail_(std::move(fail)) {}

  // Room for a tensor that a request is to write; null, rightly: there is none. REQUIRES: no event
  // is under way.
  Content* Reserve(uint64_t owner, int64_t bytes, int device, ResidentContentPtr* reserved);
  // The request that was to write it has ended; `names`: how many the tensor gets, each with these
  // terms.
  void EndWriting(Content* content, ResidentContentPtr* reserved, int names,
                  const Residents::Terms& terms);
  // False, rightly: the tensor has ended or is another owner's.
  bool Use(Name* name, uint64_t owner, std::vector<ResidentUse>* uses);
  void EndUse(Name* name, std::vector<ResidentUse>* uses);
  void Free(Name* name, uint64_t owner);
  void EndDue();

  // A device is about to break, has told its loss, is about to be mended.
  void Breaks(int device);
  void Lost();
  void Mends(int device);

  // Called between events.
  void Compare(int devices);

  int64_t evictions() const;
  // All that ever were; they stay where they are.
  std::deque<Name>& names() { return names_; }

 private:
  static std::string OwnerName(uint64_t owner) {
    return std::string(1, 'a' + static_cast<char>(owner));
  }
  int64_t HeldOn(int device) const;
  int64_t HeldBy(uint64_t owner) const;
  int64_t LiveOn(int device) const;
  bool IsOverdue(const Name& name, int64_t by_ns) const;
  // Bytes of content that has a name and that nobody may evict.
  int64_t StayingOn(int device) const;
  // Bytes of an owner's content that has a name.
  int64_t NamedBy(uint64_t owner) const;
  // Ends the names of idle evictable content for so many bytes; false: there is too little, and
  // none has ended.
  bool Evict(int device, int64_t bytes);
  void End(Name* name, ResidentEnd why);
  // Compares the names with those that the owners' lists have.
  void Reconcile();
  // The name is not listed any more.
  void CheckGone(Name* name);

  Residents& residents_;
  const Limits limits_;
  const int64_t& now_ns_;
  const std::function<void(absl::string_view)> fail_;
  std::deque<Content> contents_;
  std::deque<Name> names_;
  bool broken_[kDevicesMax] = {};
  int64_t ended_[kDevicesMax][kResidentEndCount] = {};
};

}  // namespace warpcall::testing
