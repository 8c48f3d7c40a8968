// Limits and names of what a request to inspect a kernel may ask for.
#pragma once

namespace warpcall {

// Iterations and warmup iterations of a Benchmark or Tune, iterations of a Push.
inline constexpr int kBenchmarkIterationsMax = 100'000;
// Iterations of a Profile.
inline constexpr int kProfileIterationsMax = 1'000;

// Values of BenchmarkRequest.method.
inline constexpr char kBenchmarkBurst[] = "burst";
inline constexpr char kBenchmarkSettled[] = "settled";

}  // namespace warpcall
