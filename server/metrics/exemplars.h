// Which traced requests the buckets of histograms last counted.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/metrics_sink.h"

namespace warpcall {

struct Exemplar {
  TraceId trace_id;
  int64_t ns;       // the value observed
  int64_t unix_ns;  // the time of the observation
};

// One for each bucket at most, by the number of its cell. Thread-safe.
class Exemplars {
 public:
  using Map = absl::flat_hash_map<uint32_t, Exemplar>;

  // Takes the place of the bucket's last one. An example is left out while another thread is here,
  // so that no request waits.
  void Keep(uint32_t bucket, const Exemplar& exemplar);
  Map All() const;

 private:
  mutable absl::Mutex mutex_;
  Map by_bucket_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall
