// Compiles programs to machine code, once each, and keeps it in memory and on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/common/lru_cache.h"
#include "kernels/compiled/compile_threads.h"
#include "kernels/compiled/counts.h"
#include "kernels/compiled/disk_cache.h"
#include "kernels/compiled/program.h"
#include "kernels/op.h"

namespace warpcall::compiled {

// Thread-safe.
class Cubins {
 public:
  // Most expressions' sources have some 30 KiB, and take a second. Nested reductions over rows that
  // each reads again take more: 14 of softmax 42 KiB and 11 s, 40 224 KiB.
  static constexpr size_t kSourceBytesMax = size_t{256} << 10;

  struct Options {
    // Makes machine code of a source. INTERNAL and UNIMPLEMENTED are for good.
    std::function<absl::StatusOr<std::string>(const std::string& source)> compile;
    // All that decides what `compile` makes of a source, so that files of others are not taken.
    std::string compiler;
    // Makes a program's machine code fit for use; null: nothing is to be done. It is called on the
    // thread that asks.
    std::function<absl::StatusOr<CubinPtr>(const Program& program, const std::string& image)> load;
    std::optional<DiskCache> disk;
    // Unused kernels beyond these two limits are dropped, the least recently requested first.
    // Kernels in use stay: their memory is needed anyway.
    size_t cubins_max = 256;
    size_t bytes_max = size_t{32} << 20;  // size of all sources and images
    // NVRTC takes 25 ms of one core for a kernel, and slows itself down where threads share it.
    size_t threads = 2;
    // A refused program is not compiled again for this long, in case the machine was at fault.
    int64_t refusal_ns = 60'000'000'000;
    std::function<int64_t()> now_ns;  // null: the system's monotonic clock
  };

  explicit Cubins(Options options);
  ~Cubins();

  // Waits while it is made, once however many ask, or until `stop` is set (null: never), when it
  // is CANCELLED. UNIMPLEMENTED for a source over the limit.
  absl::StatusOr<CubinPtr> Get(const Program& program, const StopFlag* stop = nullptr);

  Counts counts() const;

 private:
  struct Refusal {
    absl::Status status;
    int64_t until_ns;
  };
  struct Flight;  // one thread makes its cubin, others wait for it
  // Hashes the entries of cubins_ by the programs that their keys point to.
  struct Hash {
    size_t operator()(const Program* program) const { return absl::Hash<Program>()(*program); }
  };
  struct Equal {
    bool operator()(const Program* a, const Program* b) const { return *a == *b; }
  };
  using List = std::list<CubinPtr>;  // latest first

  // A cubin, a refusal, or nothing.
  std::optional<absl::StatusOr<CubinPtr>> Find(const Program& program)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes and keeps the cubin, then wakes the waiting threads. Called by the flight's leader.
  absl::StatusOr<CubinPtr> Lead(Flight* flight, const Program& program, const StopFlag* stop);
  absl::StatusOr<CubinPtr> Make(const Program& program, const StopFlag* stop);
  absl::StatusOr<std::string> Compile(const Program& program, const StopFlag* stop);
  absl::StatusOr<CubinPtr> Load(const Program& program, const std::string& image) const;
  // Moves the entries that had to make room to `gone`.
  void Keep(const Program& program, const absl::StatusOr<CubinPtr>& made, List* gone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoom(List* gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Count(Counts::Field field);

  const Options options_;
  mutable absl::Mutex mutex_;
  List cubins_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const Program*, List::iterator, Hash, Equal> index_ ABSL_GUARDED_BY(mutex_);
  LruCache<Program, Refusal> refusals_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Program, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  CompileThreads threads_;
};

}  // namespace warpcall::compiled
