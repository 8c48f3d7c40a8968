// Rows of the registry on a GPU, by problem: device time, GB/s or TFLOP/s, the share of the copy
// ceiling measured in the same run (of reads, too, if the row writes next to nothing), and the
// ratio to the library's row. For products also the share of the multiply-adds that were sampled
// between the rows, and for matmul cuBLASLt called directly with the best of its heuristics.
// Samples below 75 % of the default clock are dropped.
//   warpcall_cuda_kernel_bench [--settled] [KERNEL [ROW...]]
//   warpcall_cuda_kernel_bench [--settled] --problems FILE      one a line, as this program names
// them; without the family manual, which nobody's kernels are compared with
//
// With --settled a short burst chooses the fastest row of our own, and the faster of the library's
// rows and cuBLASLt called directly. These two and multiply-adds are then measured as `warpcall
// bench --method settled` measures rows, in some 30 s a problem. Their lines add the SM clock, the
// power, the energy of a launch, and TFLOP/s per GHz.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/multiply_adds.h"
#include "kernels/plan.h"
#include "kernels/registry.h"
#include "proto/common/inspect_limits.h"
#include "proto/common/status_macros.h"
#include "server/inspect/flops_ceiling.h"
#include "server/inspect/load_meter.h"
#include "server/inspect/memory_ceiling.h"
#include "server/inspect/summary.h"
#include "server/runtime/cuda/cuda_device.h"
#include "server/runtime/cuda/nvml_conditions.h"
#include "tests/bench/clock_watch.h"
#include "tests/bench/cublaslt_direct.h"
#include "tests/bench/cuda_timing.h"
#include "tests/kernels/device_array.h"

namespace warpcall::bench {
namespace {

using testing::DeviceArray;

struct Setup {
  const char* kernel;
  DataType data_type;
  std::vector<Dims> shapes;
  std::vector<NamedAttribute> attributes;
};

// Enough samples to choose the rows that a settled run measures; the first one is not counted.
constexpr int kChoosingSamples = 8;

constexpr DataType kFloat32 = DataType::kFloat32;
constexpr DataType kBFloat16 = DataType::kBFloat16;

void AddElementwise(std::vector<Setup>* setups) {
  for (const DataType type : kDataTypes)
    for (const int64_t n : {int64_t{1} << 28, int64_t{1} << 24, int64_t{1} << 20})
      setups->push_back({"gelu", type, {{n}}, {}});
  for (const DataType type : {kFloat32, kBFloat16})
    setups->push_back({"gelu", type, {{1 << 28}}, {{"approximate", std::string("none")}}});
  for (const DataType type : {kFloat32, kBFloat16})
    setups->push_back({"identity", type, {{1 << 28}}, {}});
}

void AddSoftmax(std::vector<Setup>* setups) {
  for (const DataType type : {kFloat32, kBFloat16}) {
    for (const Dims& dims :
         {Dims{65536, 256}, Dims{65536, 512}, Dims{65536, 1024}, Dims{65536, 2048},
          Dims{32768, 4096}, Dims{16384, 8192}, Dims{16384, 16384}, Dims{8192, 32768},
          Dims{4096, 65536}, Dims{2048, 131072}, Dims{1024, 262144}, Dims{8, 262144},
          Dims{65536, 1023}, Dims{32768, 4099}, Dims{262144, 64}})
      setups->push_back({"softmax", type, {dims}, {}});
    setups->push_back({"softmax", type, {{16384, 4096}}, {{"axis", int64_t{0}}}});
  }
}

void AddMatmul(std::vector<Setup>* setups) {
  struct Size {
    int64_t m, n, k;
  };
  for (const DataType type : {kFloat32, kBFloat16})
    for (const Size& size : {Size{1024, 1024, 1024}, Size{2048, 2048, 2048}, Size{4096, 4096, 4096},
                             Size{8192, 8192, 8192}, Size{12288, 2048, 10240}, Size{16, 4096, 4096},
                             Size{1, 8192, 8192}})
      setups->push_back({"matmul", type, {{size.m, size.k}, {size.k, size.n}}, {}});
  setups->push_back({"matmul",
                     kBFloat16,
                     {{4096, 4096}, {4096, 4096}},
                     {{"transpose_a", true}, {"transpose_b", true}}});
  setups->push_back({"matmul", kBFloat16, {{4095, 4095}, {4095, 4095}}, {}});
  for (const Dims& weight : {Dims{4096, 4096}, Dims{8192, 8192}})
    setups->push_back({"matmul",
                       kBFloat16,
                       {{weight[0] == 4096 ? 16 : 1, weight[0]}, weight},
                       {{"transpose_b", true}}});
  setups->push_back({"matmul", DataType::kFloat16, {{4096, 4096}, {4096, 4096}}, {}});
  for (const int64_t side : {1024, 2048, 4096, 8192, 4095})
    for (const bool transpose_b : {false, true})
      setups->push_back({"matmul",
                         kFloat32,
                         {{side, side}, {side, side}},
                         {{"precision", std::string("tf32")}, {"transpose_b", transpose_b}}});
}

// Beside the product alone, as linear has its operands.
void AddLinear(std::vector<Setup>* setups) {
  const Dims square = {4096, 4096};
  for (const DataType type : {kFloat32, kBFloat16}) {
    setups->push_back({"matmul", type, {square, square}, {{"transpose_b", true}}});
    for (const char* const activation : {"none", "relu", "gelu", "gelu_erf"})
      setups->push_back(
          {"linear", type, {square, square, {4096}}, {{"activation", std::string(activation)}}});
  }
}

void AddNorms(std::vector<Setup>* setups) {
  for (const DataType type : {kFloat32, kBFloat16})
    for (const Dims& dims : {Dims{262144, 64}, Dims{65536, 256}, Dims{65536, 1024},
                             Dims{32768, 4096}, Dims{16384, 8192}, Dims{16384, 16384}}) {
      const Dims row = {dims[1]};
      setups->push_back({"layernorm", type, {dims, row, row}, {}});
      setups->push_back({"rmsnorm", type, {dims, row}, {}});
    }
}

// Adds fused expressions over as many elements as gelu's, with a row added to each.
void AddFused(std::vector<Setup>* setups) {
  for (const DataType type : {kFloat32, kBFloat16})
    for (const char* const text : {"gelu(x0 + x1)", "softmax(x0 + x1)"})
      setups->push_back(
          {"fused", type, {{65536, 4096}, {4096}}, {{"expression", std::string(text)}}});
}

std::string Describe(const Setup& setup) {
  std::string text = absl::StrCat(setup.kernel, " ", DataTypeName(setup.data_type));
  for (const Dims& dims : setup.shapes) absl::StrAppend(&text, " ", absl::StrJoin(dims, "x"));
  for (const NamedAttribute& attribute : setup.attributes) {
    const std::string* const name = std::get_if<std::string>(&attribute.value);
    if (const bool* const flag = std::get_if<bool>(&attribute.value); flag && !*flag) continue;
    absl::StrAppend(&text, " ", attribute.name, name == nullptr ? "" : "=",
                    name == nullptr ? "" : *name);
  }
  return text;
}

// Copies of a problem's operands, more than the L2 holds five times over.
class OperandSets {
 public:
  static absl::StatusOr<OperandSets> Create(const Problem& problem,
                                            const DeviceProperties& device) {
    constexpr int kSetsMax = 64;
    size_t bytes = 0;
    for (const TensorSpec& spec : problem.inputs) bytes += spec.bytes();
    for (const TensorSpec& spec : problem.outputs) bytes += spec.bytes();
    const size_t wanted = 5 * static_cast<size_t>(device.l2_bytes) / std::max<size_t>(bytes, 1) + 1;
    OperandSets sets;
    uint64_t seed = 1;
    for (size_t i = 0; i < std::min<size_t>(wanted, kSetsMax); ++i) {
      Operands& operands = sets.operands_.emplace_back();
      for (const TensorSpec& spec : problem.inputs) {
        void* memory;
        ASSIGN_OR_RETURN(memory, sets.Allocate(spec.bytes()));
        RETURN_IF_ERROR(FillNormal(spec, seed++, memory));
        operands.inputs.push_back(memory);
      }
      for (const TensorSpec& spec : problem.outputs) {
        void* memory;
        ASSIGN_OR_RETURN(memory, sets.Allocate(spec.bytes()));
        operands.outputs.push_back(memory);
      }
    }
    return sets;
  }

  // One for all, as large as anybody asked for.
  absl::StatusOr<void*> Workspace(size_t bytes) {
    if (bytes > workspace_bytes_) {
      ASSIGN_OR_RETURN(workspace_, DeviceArray::Create(bytes));
      workspace_bytes_ = bytes;
    }
    return workspace_.data();
  }

  const Operands& operator[](int i) const {
    return operands_[static_cast<size_t>(i) % operands_.size()];
  }
  void* workspace() const { return workspace_.data(); }

 private:
  absl::StatusOr<void*> Allocate(size_t bytes) {
    DeviceArray array;
    ASSIGN_OR_RETURN(array, DeviceArray::Create(bytes));
    memory_.push_back(std::move(array));
    return memory_.back().data();
  }

  std::vector<DeviceArray> memory_;
  std::vector<Operands> operands_;
  DeviceArray workspace_;
  size_t workspace_bytes_ = 0;
};

// A row, or cuBLASLt called directly.
struct Contender {
  const char* name;
  Family family;
  PlanPtr plan;  // null: it is not a row
};

class Bench {
 public:
  struct Wanted {
    std::set<std::string> rows;  // by name; empty: all
    bool manual = true;
    bool settled = false;
  };

  Bench(CudaDevice* device, Wanted wanted, ClockWatch* clocks)
      : device_(device), wanted_(std::move(wanted)), clocks_(clocks) {
    AddCudaKernels(&registry_);
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  ~Bench() { cudaStreamDestroy(stream_); }

  absl::Status Run(const Setup& setup, const Ceilings& ceilings) {
    const Kernel* kernel;
    ASSIGN_OR_RETURN(kernel, registry_.Find(setup.kernel));
    std::vector<TensorSpec> specs;
    for (const Dims& dims : setup.shapes) specs.push_back({setup.data_type, dims});
    Problem problem;
    ASSIGN_OR_RETURN(problem, MakeProblem(*kernel->op, specs, setup.attributes));
    const std::vector<const Implementation*> rows = RowsFor(*kernel, problem);
    if (rows.empty()) return absl::OkStatus();
    OperandSets sets;
    ASSIGN_OR_RETURN(sets, OperandSets::Create(problem, properties()));
    std::vector<Contender> contenders;
    std::vector<Candidate> candidates;
    for (const Implementation* row : rows) {
      ASSIGN_OR_RETURN(const PlanPtr plan, MakePlan(*row, problem, &sets));
      contenders.push_back({row->name, row->family, plan});
      candidates.emplace_back();
      candidates.back().in_graph = std::string(row->name) != "device_memcpy";
      candidates.back().enqueue = [&sets, plan](int i, cudaStream_t stream) {
        return plan->Enqueue(sets[i], {.stream = stream, .workspace = sets.workspace()});
      };
    }
    RETURN_IF_ERROR(sets.Workspace(CublasLtDirect::kWorkspaceBytes).status());
    CublasLtDirect direct(device_->libraries());
    if (std::string(setup.kernel) == "matmul") {
      RETURN_IF_ERROR(direct.Prepare(problem, sets[0], sets.workspace(), stream_));
      contenders.push_back({"(cuBLASLt directly)", Family::kLibrary, nullptr});
      candidates.emplace_back().enqueue = [&](int i, cudaStream_t stream) {
        return direct.Launch(sets[i], sets.workspace(), stream);
      };
    }
    const Work work = kernel->op->work(problem);
    const Arithmetic arithmetic = ArithmeticOf(*kernel->op, problem);
    absl::StatusOr<MultiplyAdds> adds = absl::NotFoundError("they do not bound it");
    if (inspect::ArithmeticMayBound(work)) adds = cuda::MultiplyAddsOn(arithmetic, properties());
    if (adds.ok())
      candidates.emplace_back().enqueue = [&adds](int, cudaStream_t stream) {
        return adds->plan->Enqueue({}, {.stream = stream});
      };
    std::vector<v1::BenchmarkResult> loads = Measure(&contenders, &candidates);
    std::printf("%s\n", Describe(setup).c_str());
    double roof = 0;
    if (adds.ok()) {
      roof = PrintRoof(arithmetic, adds->flops, candidates.back(), loads.back());
      candidates.pop_back();
    }
    const double best = BestLibrary(contenders, candidates);
    const bool reads = inspect::ReadsAlmostOnly(problem);
    for (size_t i = 0; i < candidates.size(); ++i)
      Print(contenders[i], candidates[i], {work, ceilings, reads, best, roof}, loads[i]);
    std::fflush(stdout);
    return absl::OkStatus();
  }

 private:
  struct Against {
    Work work;
    const Ceilings& ceilings;
    bool reads;              // and next to no writes
    double library_seconds;  // 0: the library has no row
    double roof;             // FLOP/s of multiply-adds; 0: not measured
  };

  const DeviceProperties& properties() const { return device_->properties(); }

  // Tries its candidates on the first of `sets`, and leaves the sets with the workspace it needs.
  absl::StatusOr<PlanPtr> MakePlan(const Implementation& row, const Problem& problem,
                                   OperandSets* sets) {
    const auto workspace = [sets](size_t bytes) { return sets->Workspace(bytes); };
    const Tryout tryout = {stream_, &(*sets)[0], workspace};
    ASSIGN_OR_RETURN(PlanPtr plan, row.plan(problem, {.device = &properties(),
                                                      .libraries = device_->libraries(),
                                                      .tryout = &tryout}));
    RETURN_IF_ERROR(sets->Workspace(plan->traits().workspace_bytes).status());
    return plan;
  }

  std::vector<const Implementation*> RowsFor(const Kernel& kernel, const Problem& problem) const {
    std::vector<const Implementation*> rows;
    for (int id : kernel.rows) {
      const Implementation& row = registry_.rows()[id].implementation;
      const bool takes = std::find(row.data_types.begin(), row.data_types.end(),
                                   problem.inputs[0].data_type) != row.data_types.end();
      // Without tiling, 8192^3 takes a minute.
      const bool slow = std::string(kernel.op->name) == "matmul" &&
                        kernel.op->work(problem).flops > int64_t{200} << 30;
      const bool skipped = row.family == Family::kManual && (slow || !wanted_.manual);
      if (takes && !skipped && (wanted_.rows.empty() || wanted_.rows.count(row.name) > 0) &&
          row.supports(problem, properties()).ok())
        rows.push_back(&row);
    }
    return rows;
  }

  // Times the candidates: the contenders, and multiply-adds if there is one more. A settled run
  // leaves only those that it measures. Returns each one's load, which only a settled run fills.
  std::vector<v1::BenchmarkResult> Measure(std::vector<Contender>* contenders,
                                           std::vector<Candidate>* candidates) {
    const auto slow = [this] { return clocks_->RunsSlowly(); };
    Time(*candidates, stream_, slow, wanted_.settled ? kChoosingSamples : kSamplesMax);
    if (!wanted_.settled) return std::vector<v1::BenchmarkResult>(candidates->size());
    std::vector<Contender> kept;
    std::vector<Candidate> measured;
    for (const bool library : {false, true}) {
      const int fastest = Fastest(*contenders, *candidates, library);
      if (fastest < 0) continue;
      kept.push_back((*contenders)[static_cast<size_t>(fastest)]);
      measured.push_back((*candidates)[static_cast<size_t>(fastest)]);
    }
    if (candidates->size() > contenders->size()) measured.push_back(candidates->back());
    *contenders = std::move(kept);
    *candidates = std::move(measured);
    return Settle(*candidates, contenders->size());
  }

  // Returns the index of the library's fastest contender, or of our fastest row; -1: there is none.
  // Rows in Triton's language are neither: they count with the peers in that language.
  static int Fastest(const std::vector<Contender>& contenders,
                     const std::vector<Candidate>& candidates, bool library) {
    int fastest = -1;
    for (size_t i = 0; i < contenders.size(); ++i) {
      const Family family = contenders[i].family;
      const bool own = family == Family::kCuda || family == Family::kCompiled;
      if (!(library ? family == Family::kLibrary : own) || candidates[i].seconds <= 0) continue;
      if (fastest < 0 || candidates[i].seconds < candidates[static_cast<size_t>(fastest)].seconds)
        fastest = static_cast<int>(i);
    }
    return fastest;
  }

  // A candidate's load and samples in a settled run.
  struct Settled {
    inspect::LoadMeter load;
    std::vector<double> seconds;  // of a launch, by sample
  };

  // Multiply-adds have one turn. The others have two, in order and then in reverse, so that a drift
  // of the device meets them alike; the last one settles once for both.
  std::vector<v1::BenchmarkResult> Settle(std::vector<Candidate>& candidates, size_t contenders) {
    std::vector<Settled> all;
    for (size_t i = 0; i < candidates.size(); ++i)
      all.push_back({inspect::LoadMeter(clocks_->conditions(), MonotonicNs), {}});
    const auto turn = [&](size_t i, int windows) {
      if (candidates[i].status.ok())
        candidates[i].status = TakeTurn(candidates[i], windows, &all[i]);
    };
    if (candidates.size() > contenders) turn(contenders, 1);
    for (size_t i = 0; i + 1 < contenders; ++i) turn(i, 1);
    if (contenders > 0) turn(contenders - 1, 2);
    for (size_t i = contenders; i-- > 1;) turn(i - 1, 1);
    std::vector<v1::BenchmarkResult> loads(candidates.size());
    for (size_t i = 0; i < candidates.size(); ++i) {
      const inspect::Summary summary = inspect::Summarize(all[i].seconds);
      candidates[i].seconds = summary.median;
      candidates[i].seconds_p10 = summary.p10;
      candidates[i].seconds_p90 = summary.p90;
      candidates[i].dropped = 0;
      all[i].load.WriteTo(&loads[i]);
    }
    return loads;
  }

  // Runs the candidate until the clock has settled, then times it `windows` times LoadMeter's time.
  absl::Status TakeTurn(const Candidate& candidate, int windows, Settled* settled) const {
    inspect::LoadMeter& load = settled->load;
    bool timed = false;
    int64_t launches = 0;
    load.Begin();
    return RunSteadily(candidate, stream_, [&](double seconds, int64_t count) {
      load.Look(clocks_->stamp());
      if (!timed) {
        timed = load.IsSettled();
        if (timed) load.BeginTimed();
        return true;
      }
      launches += count;
      settled->seconds.push_back(seconds);
      if (!load.IsTimed()) return true;
      load.EndTimed(std::exchange(launches, 0));
      if (--windows > 0) load.BeginTimed();
      return windows > 0;
    });
  }

  static double BestLibrary(const std::vector<Contender>& contenders,
                            const std::vector<Candidate>& candidates) {
    const int best = Fastest(contenders, candidates, true);
    return best < 0 ? 0 : candidates[static_cast<size_t>(best)].seconds;
  }

  // FLOP/s.
  static double PrintRoof(Arithmetic arithmetic, int64_t flops, const Candidate& candidate,
                          const v1::BenchmarkResult& load) {
    if (candidate.seconds <= 0) return 0;
    const double roof = static_cast<double>(flops) / candidate.seconds;
    std::printf("  (multiply-adds)        %.2f TFLOP/s in %s", roof * 1e-12,
                ArithmeticName(arithmetic));
    PrintLoad(load, roof);
    std::printf("\n");
    return roof;
  }

  // Prints nothing for a load that nothing has measured.
  static void PrintLoad(const v1::BenchmarkResult& load, double flops_per_second) {
    if (!(load.settled_clock_mhz() > 0)) return;
    std::printf("  %5.0f MHz %6.1f W %9.3f mJ %7.4f TFLOP/s per GHz", load.settled_clock_mhz(),
                load.settled_power_watts(), load.energy_joules() * 1e3,
                flops_per_second * 1e-9 / load.settled_clock_mhz());
  }

  static void Print(const Contender& contender, const Candidate& candidate, const Against& against,
                    const v1::BenchmarkResult& load) {
    if (!candidate.status.ok()) {
      std::printf("  %-22s %s\n", contender.name, std::string(candidate.status.message()).c_str());
      return;
    }
    const double bytes_per_second = static_cast<double>(against.work.bytes) / candidate.seconds;
    const double flops_per_second = static_cast<double>(against.work.flops) / candidate.seconds;
    std::printf("  %-22s %10.2f us  (p10 %.2f p90 %.2f) %8.0f GB/s %5.1f %% of copy %8.2f TFLOP/s",
                contender.name, candidate.seconds * 1e6, candidate.seconds_p10 * 1e6,
                candidate.seconds_p90 * 1e6, bytes_per_second * 1e-9,
                100 * bytes_per_second / against.ceilings.copy_bytes_per_second,
                flops_per_second * 1e-12);
    if (against.reads)
      std::printf("  %5.1f %% of reads",
                  100 * bytes_per_second / against.ceilings.read_bytes_per_second);
    PrintLoad(load, flops_per_second);
    if (against.roof > 0)
      std::printf("  %5.1f %% of multiply-adds", 100 * flops_per_second / against.roof);
    if (against.library_seconds > 0)
      std::printf("  %5.2f x library", against.library_seconds / candidate.seconds);
    const PlanPtr& plan = contender.plan;
    if (plan != nullptr && plan->shape().ok() && plan->shape()->waves > 0)
      std::printf("  occupancy %.2f waves %.2f", plan->shape()->theoretical_occupancy,
                  plan->shape()->waves);
    if (candidate.dropped > 0)
      std::printf("  dropped %lld samples", static_cast<long long>(candidate.dropped));
    std::printf("\n");
  }

  CudaDevice* const device_;
  const Wanted wanted_;
  ClockWatch* const clocks_;
  Registry registry_;
  cudaStream_t stream_ = nullptr;
};

std::unique_ptr<ConditionReader> ConditionsOf(const CudaDevice& device) {
  const absl::StatusOr<nvml::Api> api = nvml::Open(nvml::kFile);
  if (!api.ok()) return nullptr;
  auto conditions = nvml::GpuConditions::Open(*api, device.properties().pci_bus_id);
  return conditions.ok() ? *std::move(conditions) : nullptr;
}

// Those of the command line, in their order here. NOT_FOUND names one that there is not.
absl::StatusOr<std::vector<Setup>> Chosen(std::vector<Setup> setups, int argc, char** argv) {
  if (argc < 2) return setups;
  const bool by_file = std::string(argv[1]) == "--problems";
  std::set<std::string> wanted;
  std::ifstream file(by_file && argc > 2 ? argv[2] : "");
  for (std::string line; std::getline(file, line);) wanted.insert(line);
  if (by_file && wanted.empty()) return absl::NotFoundError("--problems: no file with a line");
  std::vector<Setup> chosen;
  for (Setup& setup : setups)
    if (by_file ? wanted.erase(Describe(setup)) > 0 : std::string(setup.kernel) == argv[1])
      chosen.push_back(std::move(setup));
  if (!wanted.empty())
    return absl::NotFoundError(absl::StrCat("no such problem: ", absl::StrJoin(wanted, ", ")));
  return chosen;
}

absl::Status Main(int argc, char** argv) {
  const bool settled = argc > 1 && std::string(argv[1]) == "--settled";
  if (settled) {
    --argc;
    ++argv;
  }
  std::unique_ptr<CudaDevice> device;
  ASSIGN_OR_RETURN(device, CudaDevice::Open(0));
  Ceilings ceilings;
  ASSIGN_OR_RETURN(ceilings, MeasureCeilings(device->properties()));
  std::printf(
      "%s: copy %.0f GB/s, reads %.0f GB/s; PCIe to the device %.1f, from it %.1f, both at once "
      "%.1f GB/s\n",
      device->properties().description.c_str(), ceilings.copy_bytes_per_second * 1e-9,
      ceilings.read_bytes_per_second * 1e-9, ceilings.h2d_bytes_per_second * 1e-9,
      ceilings.d2h_bytes_per_second * 1e-9, ceilings.both_ways_bytes_per_second * 1e-9);
  std::printf("method: %s\n", settled ? kBenchmarkSettled : kBenchmarkBurst);
  std::vector<Setup> setups;
  AddElementwise(&setups);
  AddSoftmax(&setups);
  AddMatmul(&setups);
  AddLinear(&setups);
  AddNorms(&setups);
  AddFused(&setups);
  ASSIGN_OR_RETURN(setups, Chosen(std::move(setups), argc, argv));
  const bool by_file = argc > 1 && std::string(argv[1]) == "--problems";
  Bench::Wanted wanted = {.rows = {}, .manual = !by_file && !settled, .settled = settled};
  if (argc > 2 && !by_file) wanted.rows.insert(argv + 2, argv + argc);
  const std::unique_ptr<ConditionReader> conditions = ConditionsOf(*device);
  ClockWatch clocks(conditions.get());
  Bench bench(device.get(), std::move(wanted), &clocks);
  for (const Setup& setup : setups) {
    const absl::Status status = bench.Run(setup, ceilings);
    if (!status.ok()) std::printf("%s: %s\n", Describe(setup).c_str(), status.ToString().c_str());
  }
  std::printf("conditions: %s\n", clocks.Describe().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace warpcall::bench

int main(int argc, char** argv) {
  const absl::Status status = warpcall::bench::Main(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
