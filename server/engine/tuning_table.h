// Measurements of the implementations of each class of problems. They rank the choices of "auto",
// and of a family's name, before the op's order does.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/registry.h"
#include "server/engine/problem_class.h"

namespace warpcall {

// The conditions under which a class was measured.
struct TuningStamp {
  int64_t started_unix_ns = 0;
  std::string server_version = "";
  std::string driver = "";  // empty on the CPU; the next fields are 0 there
  int32_t sm_clock_mhz_min = 0;
  int32_t sm_clock_mhz_max = 0;
  std::string throttle_reasons = "";  // separated by commas; empty: none were seen
};

// An implementation whose result was within its tolerance.
struct RightRow {
  int row = -1;  // Row::id
  // Time of a launch: the median, and the ends of its 95 % confidence interval.
  double median_ns = 0;
  double median_low_ns = 0;
  double median_high_ns = 0;
  bool unstable = false;  // too noisy to rank among the stable ones
};

// An implementation whose result was outside its tolerance.
struct WrongRow {
  int row = -1;
  double max_error = 0;  // the largest |out - ref| over the bound of its tolerance; right is <= 1
  std::string server_version = "";  // version of the server that saw it
};

// One class of problems of one kernel on one model of device.
struct TunedClass {
  int kernel = -1;                // Kernel::id
  std::string device_model = "";  // DeviceModelOf
  Problem problem = {};           // the measured one
  TuningStamp stamp = {};
  std::vector<RightRow> right = {};  // by preference: stable ones first, then by median
  std::vector<WrongRow> wrong = {};
  bool shipped = false;  // it came with the program
};

// A name shared by devices for which each other's measurements hold: "NVIDIA H200, 132
// multiprocessors".
std::string DeviceModelOf(const DeviceProperties& device);

// Sorts into the order of TunedClass::right.
void SortByPreference(std::vector<RightRow>* rows);

// Thread-safe, except AddDevice.
class TuningTable {
 public:
  // Beyond this number the class that was measured longest ago is dropped.
  static constexpr size_t kClassesMax = 4096;

  explicit TuningTable(const Registry& registry);

  // Devices are numbered in the order in which they are added. REQUIRES: no lookups yet.
  void AddDevice(const DeviceProperties& device);

  // Returns null when the problem's class was not measured on such a device. Costs a lock and a
  // hash of some 20 words, and nothing for kernels without any measured class.
  std::shared_ptr<const TunedClass> Find(const Kernel& kernel, const Problem& problem,
                                         int device) const;

  // Replaces the measurements of the class. Implementations that were wrong before stay wrong until
  // a server of another version measures them right. Returns the former measurements, or null.
  // REQUIRES: ids are the registry's, and the problem is one of the kernel.
  std::shared_ptr<const TunedClass> Take(TunedClass measured);

  // In no particular order; includes those of models that this server has no device of.
  std::vector<std::shared_ptr<const TunedClass>> Classes() const;

 private:
  using Key = ProblemClass;  // the problem's, then kernel and model of device

  Key KeyOf(const Op& op, const Problem& problem, int kernel, uint32_t model) const;
  uint32_t ModelNumber(absl::string_view device_model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Registry& registry_;
  std::vector<uint32_t> model_of_device_;
  // Per kernel: the number of classes now or before, so that other kernels need no lock.
  std::unique_ptr<std::atomic<int>[]> tuned_;
  mutable absl::Mutex mutex_;
  std::vector<std::string> models_ ABSL_GUARDED_BY(mutex_);  // by number
  absl::flat_hash_map<Key, std::shared_ptr<const TunedClass>> classes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall
