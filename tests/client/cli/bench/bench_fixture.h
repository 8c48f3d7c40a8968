// `warpcall bench` as users run it, against a server whose measurements the test decides.
#pragma once

#include <string>

#include "tests/client/cli/cli_fixture.h"

namespace warpcall::cli {

inline void AddResult(const std::string& implementation, double median_ns,
                      v1::BenchmarkResponse* response) {
  v1::BenchmarkResult* result = response->add_results();
  result->set_implementation(implementation);
  result->set_family("cpu");
  result->set_mean_ns(median_ns + 1.0 / 3);
  result->set_median_ns(median_ns);
  result->set_min_ns(median_ns - 1);
  result->set_p90_ns(median_ns * 2);
  result->set_p10_ns(median_ns - 0.5);
  result->set_median_low_ns(median_ns * 0.99);
  result->set_median_high_ns(median_ns * 1.02);
  result->set_bytes_per_second(8192 * 1e9 / median_ns);
  result->set_flops_per_second(4096 * 1e9 / median_ns);
  result->set_fraction_of_ceiling(0.25);
  testing::Merge(
      R"(relative_error: 1.5e-7 max_error: 0.25 noise: 0.0077
         checked_elements: 1024 iterations: 100 launches_per_iteration: 3
         launch { bytes_moved: 8192 flops: 4096 theoretical_occupancy: 0.75 waves: 1.5
                  gpu_kernels: 1 })",
      result);
}

// Three rows, of which the second is the fastest, and one that does not run.
inline FakeAnswer FourRows(const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
  response->set_device(request.device().empty() ? "cpu" : request.device());
  response->set_ceiling_bytes_per_second(2.5e10);
  testing::Merge(R"(flops_ceiling: 1.2e12
                    stamp { device_description: "a processor" server_version: "0.1.0" seed: 1
                            started_unix_ns: 1700000000000000000 })",
                 response);
  AddResult("slow_row", 4000, response);
  AddResult("fast_row", 1000, response);
  testing::Merge(R"(implementation: "picky_row" family: "library"
                    error: "takes \"f16\" only, says it")",
                 response->add_results());
  AddResult("middle_row", 2500, response);
  for (v1::BenchmarkResult& result : *response->mutable_results())
    if (result.error().empty())
      result.set_verdict(result.median_ns() < 1500 ? "fastest" : "slower by 150 %");
  return {};
}

class BenchCliTest : public CliTest {
 protected:
  BenchCliTest() {
    ListSoftmaxAndMatmul();
    server_.AnswerBenchmark(std::ref(benchmark_));
  }

  // Refuses requests whose text contains `part`.
  void Refuse(const std::string& part) {
    benchmark_.Set([part](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
      if (Text(request).find(part) == std::string::npos) return FourRows(request, response);
      return FakeAnswer{absl::ResourceExhaustedError("operands of 9 GiB; limit 8"), std::nullopt};
    });
  }

  // The program's version.
  std::string Version() {
    const std::string text = Warpcall("--version").out;
    return text.substr(0, text.find('\n'));
  }

  Script<v1::BenchmarkRequest, v1::BenchmarkResponse> benchmark_{FourRows};
};

}  // namespace warpcall::cli
