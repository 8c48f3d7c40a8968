// Rows of the registry on a GPU, by problem: device time, GB/s or TFLOP/s, the share of the copy
// ceiling measured in the same run, and the ratio to the library's row. For products also the share
// of the multiply-adds that were sampled between the rows, and for matmul cuBLASLt called directly
// with the best of its heuristics. Samples below 75 % of the default clock are dropped.
//   warpcall_cuda_kernel_bench [KERNEL [ROW...]]
//   warpcall_cuda_kernel_bench --problems FILE      one a line, as this program names them; without
// the family manual, which nobody's kernels are compared with
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
#include "proto/common/status_macros.h"
#include "server/inspect/flops_ceiling.h"
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

class Bench {
 public:
  struct Wanted {
    std::set<std::string> rows;  // by name; empty: all
    bool manual = true;
  };

  Bench(CudaDevice* device, Wanted wanted, ClockWatch* clocks)
      : device_(device), wanted_(std::move(wanted)), clocks_(clocks) {
    AddCudaKernels(&registry_);
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  ~Bench() { cudaStreamDestroy(stream_); }

  absl::Status Run(const Setup& setup, double ceiling) {
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
    std::vector<PlanPtr> plans;
    std::vector<Candidate> candidates;
    for (const Implementation* row : rows) {
      ASSIGN_OR_RETURN(const PlanPtr plan, MakePlan(*row, problem, &sets));
      plans.push_back(plan);
      candidates.emplace_back();
      candidates.back().in_graph = std::string(row->name) != "device_memcpy";
      candidates.back().enqueue = [&sets, plan](int i, cudaStream_t stream) {
        return plan->Enqueue(sets[i], {.stream = stream, .workspace = sets.workspace()});
      };
    }
    RETURN_IF_ERROR(sets.Workspace(CublasLtDirect::kWorkspaceBytes).status());
    CublasLtDirect direct(device_->libraries());
    const bool with_direct = std::string(setup.kernel) == "matmul";
    if (with_direct) {
      RETURN_IF_ERROR(direct.Prepare(problem, sets[0], sets.workspace(), stream_));
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
    Time(candidates, stream_, [this] { return clocks_->RunsSlowly(); });
    std::printf("%s\n", Describe(setup).c_str());
    double roof = 0;
    if (adds.ok()) {
      roof = PrintRoof(arithmetic, adds->flops, candidates.back());
      candidates.pop_back();
    }
    const double best = BestLibrary(rows, candidates);
    for (size_t i = 0; i < candidates.size(); ++i)
      Print(i < rows.size() ? rows[i]->name : "(cuBLASLt directly)",
            i < rows.size() ? plans[i] : nullptr, candidates[i], {work, ceiling, best, roof});
    std::fflush(stdout);
    return absl::OkStatus();
  }

 private:
  struct Against {
    Work work;
    double ceiling;          // bytes per second
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

  static double BestLibrary(const std::vector<const Implementation*>& rows,
                            const std::vector<Candidate>& candidates) {
    double best = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const bool library = i >= rows.size() || rows[i]->family == Family::kLibrary;
      if (library && candidates[i].seconds > 0 && (best == 0 || candidates[i].seconds < best))
        best = candidates[i].seconds;
    }
    return best;
  }

  // FLOP/s.
  static double PrintRoof(Arithmetic arithmetic, int64_t flops, const Candidate& candidate) {
    if (candidate.seconds <= 0) return 0;
    const double roof = static_cast<double>(flops) / candidate.seconds;
    std::printf("  (multiply-adds)        %.2f TFLOP/s in %s\n", roof * 1e-12,
                ArithmeticName(arithmetic));
    return roof;
  }

  // `plan`: null for a contender that is not a row.
  static void Print(const char* name, const PlanPtr& plan, const Candidate& candidate,
                    const Against& against) {
    if (!candidate.status.ok()) {
      std::printf("  %-22s %s\n", name, std::string(candidate.status.message()).c_str());
      return;
    }
    const double bytes_per_second = static_cast<double>(against.work.bytes) / candidate.seconds;
    std::printf("  %-22s %10.2f us  (p10 %.2f p90 %.2f) %8.0f GB/s %5.1f %% of copy %8.2f TFLOP/s",
                name, candidate.seconds * 1e6, candidate.seconds_p10 * 1e6,
                candidate.seconds_p90 * 1e6, bytes_per_second * 1e-9,
                100 * bytes_per_second / against.ceiling,
                static_cast<double>(against.work.flops) / candidate.seconds * 1e-12);
    if (against.roof > 0)
      std::printf("  %5.1f %% of multiply-adds",
                  100 * static_cast<double>(against.work.flops) / candidate.seconds / against.roof);
    if (against.library_seconds > 0)
      std::printf("  %5.2f x library", against.library_seconds / candidate.seconds);
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
  std::unique_ptr<CudaDevice> device;
  ASSIGN_OR_RETURN(device, CudaDevice::Open(0));
  Ceilings ceilings;
  ASSIGN_OR_RETURN(ceilings, MeasureCeilings());
  std::printf("%s: copy %.0f GB/s; PCIe to the device %.1f, from it %.1f, both at once %.1f GB/s\n",
              device->properties().description.c_str(), ceilings.copy_bytes_per_second * 1e-9,
              ceilings.h2d_bytes_per_second * 1e-9, ceilings.d2h_bytes_per_second * 1e-9,
              ceilings.both_ways_bytes_per_second * 1e-9);
  std::vector<Setup> setups;
  AddElementwise(&setups);
  AddSoftmax(&setups);
  AddMatmul(&setups);
  AddLinear(&setups);
  AddNorms(&setups);
  AddFused(&setups);
  ASSIGN_OR_RETURN(setups, Chosen(std::move(setups), argc, argv));
  Bench::Wanted wanted = {.rows = {}, .manual = argc < 2 || std::string(argv[1]) != "--problems"};
  if (argc > 2 && wanted.manual) wanted.rows.insert(argv + 2, argv + argc);
  const std::unique_ptr<ConditionReader> conditions = ConditionsOf(*device);
  ClockWatch clocks(conditions.get());
  Bench bench(device.get(), std::move(wanted), &clocks);
  for (const Setup& setup : setups) {
    const absl::Status status = bench.Run(setup, ceilings.copy_bytes_per_second);
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
