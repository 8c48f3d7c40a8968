// The result of a load run, for people and for programs.
//
// JSON: times are whole nanoseconds (`_ns`), byte counts are of tensor data, rates are per second.
//
//   request              what was asked for: server, mode ("closed" or "open"), rate_per_second,
//                        arrivals and seed (rate and arrivals: null in a closed loop), concurrency,
//                        connections, warmup_ns, duration_ns or requests (the other is null),
//                        deadline_ns, retry, check
//   interrupted          ended by Ctrl-C
//   elapsed_ns           from the end of the warm-up to the end of the run or the last answer,
//                        whichever is later
//   warmup               requests, failed: sent before, and not counted anywhere else
//   planned              open loop, else null: arrivals that should have been sent
//   unsent, late         those that were not, and those that were sent after their time, because
//                        all workers were busy, or paused
//   kept_up              neither of these happened
//   backoff              pauses of workers after requests that were refused for now (UNAVAILABLE,
//                        RESOURCE_EXHAUSTED), and total_ns, what they took together
//   lateness             open loop, else null: from the planned time to the sending; a DISTRIBUTION
//   all                  a GROUP: of all requests
//   entries              one GROUP each for the entries of the mix, with more keys: name (as
//                        --mix takes it), kernel, implementation, device, attributes, shapes,
//                        data_type, weight
//
//   GROUP                sent, ok, failed, statuses ({CODE: {count, message of the first}}),
//                        requests_per_second (OK ones), input_bytes, output_bytes,
//                        input_bytes_per_second, output_bytes_per_second, retries (all of OK
//                        requests), latency (a DISTRIBUTION: from the planned time, in a closed
//                        loop from the sending, to the answer, OK requests only), failed_latency
//                        (the same of the others), phases (of OK requests, as the server measured
//                        them: {queue, copy_in, h2d, kernel, d2h, total: DISTRIBUTION})
//   DISTRIBUTION         count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns; percentiles
//                        within 0.8 %
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/cli/load/calls.h"
#include "client/cli/load/run.h"

namespace warpcall::cli {

struct LoadReport {
  const LoadOptions& options;
  const std::vector<LoadEntryCalls>& entries;
  const LoadResult& result;
  bool interrupted;
};

nlohmann::json ToJson(const LoadReport& report);
// Tables, and what should not be overlooked in sentences.
std::string ToText(const LoadReport& report);

}  // namespace warpcall::cli
