#include "server/transport/inference/statistics.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace warpcall::oip {

void Statistics::Duration::Add(int64_t added_ns) {
  ns.fetch_add(static_cast<uint64_t>(std::max<int64_t>(added_ns, 0)), std::memory_order_relaxed);
  count.fetch_add(1, std::memory_order_relaxed);
}

void Statistics::Duration::WriteTo(inference::StatisticDuration* duration) const {
  duration->set_count(count.load(std::memory_order_relaxed));
  duration->set_ns(ns.load(std::memory_order_relaxed));
}

void Statistics::Record(size_t model, const RequestTrace& trace, bool succeeded) {
  OfModel& of = models_[model];
  of.queue.Add(trace.queue_ns);
  if (!succeeded) return of.fail.Add(trace.total_ns);
  of.compute_input.Add(trace.copy_in_ns + trace.h2d_ns);
  of.compute_infer.Add(trace.kernel_ns);
  of.compute_output.Add(trace.d2h_ns);
  of.last_ms.store(static_cast<uint64_t>(absl::ToUnixMillis(absl::Now())),
                   std::memory_order_relaxed);
  of.success.Add(trace.total_ns);
}

void Statistics::WriteTo(size_t model, inference::ModelStatistics* statistics) const {
  const OfModel& of = models_[model];
  inference::InferStatistics& sums = *statistics->mutable_inference_stats();
  of.success.WriteTo(sums.mutable_success());
  of.fail.WriteTo(sums.mutable_fail());
  of.queue.WriteTo(sums.mutable_queue());
  of.compute_input.WriteTo(sums.mutable_compute_input());
  of.compute_infer.WriteTo(sums.mutable_compute_infer());
  of.compute_output.WriteTo(sums.mutable_compute_output());
  // There is no cache: nothing was found there, or missed.
  sums.mutable_cache_hit();
  sums.mutable_cache_miss();
  const uint64_t ran = sums.success().count();
  statistics->set_last_inference(of.last_ms.load(std::memory_order_relaxed));
  statistics->set_inference_count(ran);
  statistics->set_execution_count(ran);
  if (ran == 0) return;
  inference::InferBatchStatistics& batches = *statistics->add_batch_stats();
  batches.set_batch_size(1);
  *batches.mutable_compute_input() = sums.compute_input();
  *batches.mutable_compute_infer() = sums.compute_infer();
  *batches.mutable_compute_output() = sums.compute_output();
}

}  // namespace warpcall::oip
