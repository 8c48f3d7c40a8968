// Rows of the registry on the CPU device, each in turn with the baseline of its op (oneDNN's row,
// the fastest there is from outside): run, pause, baseline, pause, run ... so that both see the
// same machine. Columns: the row's time, bytes/s or FLOP/s by the op's definition, and `vs_onednn`,
// the median time of the baseline over the row's (above 1: faster than oneDNN).
#include <benchmark/benchmark.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/plan.h"
#include "kernels/registry.h"
#include "tests/kernels/run_row.h"

namespace warpcall {
namespace {

using testing::Memory;

struct Setup {
  std::string kernel;
  DataType data_type;
  std::vector<Dims> shapes;
  std::vector<NamedAttribute> attributes;
};

std::vector<Setup> Setups() {
  std::vector<Setup> setups;
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    setups.push_back({"identity", type, {{16 << 20}}, {}});
    setups.push_back({"gelu", type, {{16 << 20}}, {{"approximate", std::string("tanh")}}});
    setups.push_back({"gelu", type, {{16 << 20}}, {{"approximate", std::string("none")}}});
    for (const Dims& dims : {Dims{4096, 4096}, Dims{65536, 256}, Dims{16, 1 << 20}}) {
      setups.push_back({"softmax", type, {dims}, {{"axis", int64_t{-1}}}});
    }
    setups.push_back({"softmax", type, {{4096, 4096}}, {{"axis", int64_t{0}}}});
    for (const int64_t n : {256, 1024}) setups.push_back({"matmul", type, {{n, n}, {n, n}}, {}});
  }
  return setups;
}

cpu::ThreadPool& Pool() {
  static cpu::ThreadPool* const pool = [] {
    cpu_set_t usable;
    const bool known = sched_getaffinity(0, sizeof(usable), &usable) == 0;
    return new cpu::ThreadPool(known ? CPU_COUNT(&usable) : 1);
  }();
  return *pool;
}

const DeviceProperties& Device() {
  static const DeviceProperties* const device = [] {
    auto* created = new DeviceProperties;
    created->name = "cpu";
    created->multiprocessors = Pool().threads();
    return created;
  }();
  return *device;
}

// A problem with its memory, shared by the rows that run on it.
struct Bench {
  Problem problem;
  std::vector<Memory> memory;  // inputs, outputs
  Operands operands;
};

// A row's plan for a problem, and the plan's workspace.
struct Planned {
  PlanPtr plan;  // null: refused the problem
  Memory workspace;
};

Planned PlanFor(const Implementation* row, const Problem& problem) {
  if (row == nullptr) return {nullptr, Memory(0)};
  absl::StatusOr<PlanPtr> plan = row->plan(problem, {.device = &Device()});
  if (!plan.ok()) return {nullptr, Memory(0)};
  Planned planned = {*plan, Memory((*plan)->traits().workspace_bytes)};
  planned.workspace.Poison(0);
  return planned;
}

Bench MakeBench(Problem problem) {
  Bench bench{.problem = std::move(problem), .memory = {}, .operands = {}};
  std::mt19937_64 random(42);
  std::normal_distribution<float> normal;
  for (const TensorSpec& spec : bench.problem.inputs) {
    bench.memory.emplace_back(spec.bytes());
    void* const data = bench.memory.back().data();
    for (int64_t i = 0; i < spec.elements(); ++i) {
      testing::SetValue(data, spec.data_type, i, normal(random));
    }
    bench.operands.inputs.push_back(data);
  }
  for (const TensorSpec& spec : bench.problem.outputs) {
    bench.memory.emplace_back(spec.bytes());
    bench.memory.back().Poison(0);
    bench.operands.outputs.push_back(bench.memory.back().data());
  }
  return bench;
}

double SecondsOf(const Planned& planned, const Bench& bench) {
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = planned.plan->Enqueue(
      bench.operands, {.stream = &Pool(), .workspace = planned.workspace.data()});
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return status.ok() ? time.count() : -1;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// OpenMP's threads spin for some milliseconds after oneDNN returns and would take a core from the
// next row.
void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

struct Pair {
  const Implementation* row;
  const Implementation* baseline;  // null: refused the problem
};

void Run(benchmark::State& state, const Pair& pair, const Setup& setup) {
  const absl::StatusOr<const Kernel*> kernel = testing::CpuKernels().Find(setup.kernel);
  std::vector<TensorSpec> specs;
  for (const Dims& dims : setup.shapes) specs.push_back({setup.data_type, dims});
  absl::StatusOr<Problem> problem = MakeProblem(*(*kernel)->op, specs, setup.attributes);
  const Bench bench = MakeBench(*std::move(problem));
  const Planned row = PlanFor(pair.row, bench.problem);
  const Planned baseline = PlanFor(pair.baseline, bench.problem);
  if (row.plan == nullptr || SecondsOf(row, bench) < 0) return state.SkipWithError("launch failed");
  std::vector<double> row_seconds;
  std::vector<double> baseline_seconds;
  for (auto _ : state) {
    row_seconds.push_back(SecondsOf(row, bench));
    Pause();
    if (baseline.plan != nullptr) baseline_seconds.push_back(SecondsOf(baseline, bench));
    Pause();
    state.SetIterationTime(row_seconds.back());
  }
  const Work work = (*kernel)->op->work(bench.problem);
  const double median = Median(row_seconds);
  state.counters["median_ms"] = 1e3 * median;
  if (setup.kernel == "matmul") {
    state.counters["GFLOP/s"] = 1e-9 * static_cast<double>(work.flops) / median;
  } else {
    state.counters["GB/s"] = 1e-9 * static_cast<double>(work.bytes) / median;
  }
  if (!baseline_seconds.empty()) {
    state.counters["vs_onednn"] = Median(baseline_seconds) / median;
  }
}

std::string NameOf(const Setup& setup, const Implementation& row) {
  std::string name = absl::StrCat(setup.kernel, "/", row.name);
  for (const Dims& dims : setup.shapes) {
    absl::StrAppend(&name, "/", ToString({setup.data_type, dims}));
  }
  for (const NamedAttribute& attribute : setup.attributes) {
    const std::string* const text = std::get_if<std::string>(&attribute.value);
    absl::StrAppend(&name, "/", attribute.name, "=",
                    text != nullptr ? *text : absl::StrCat(std::get<int64_t>(attribute.value)));
  }
  return name;
}

bool WorthRunning(const Setup& setup, const Implementation& row) {
  const bool is_slow = row.family == Family::kManual || row.family == Family::kReference;
  // Without tiling 1024^3 takes seconds.
  return !(setup.kernel == "matmul" && is_slow && setup.shapes[0][0] > 256);
}

void RegisterSetup(const Setup& setup) {
  const Registry& registry = testing::CpuKernels();
  const Kernel& kernel = **registry.Find(setup.kernel);
  std::vector<TensorSpec> specs;
  for (const Dims& dims : setup.shapes) specs.push_back({setup.data_type, dims});
  const Problem problem = *MakeProblem(*kernel.op, specs, setup.attributes);
  const auto baseline = registry.Select(kernel, "library", problem, Device());
  for (const int id : kernel.rows) {
    const Implementation* const row = &registry.rows()[id].implementation;
    if (!WorthRunning(setup, *row) || !row->supports(problem, Device()).ok()) continue;
    const Pair pair{row, baseline.ok() ? &(*baseline)->implementation : nullptr};
    benchmark::RegisterBenchmark(
        NameOf(setup, *row).c_str(),
        [pair, setup](benchmark::State& state) { Run(state, pair, setup); })
        ->UseManualTime()
        ->MinTime(0.3)
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace warpcall

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const warpcall::Setup& setup : warpcall::Setups()) warpcall::RegisterSetup(setup);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
