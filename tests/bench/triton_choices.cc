// Measures on the GPU at hand which tile of Triton's kernels is fastest for each problem of
// kernels/triton/choices.txt, and prints that file anew:
//   warpcall_triton_choices >choices.txt
// What each variant took goes to standard error. The kernels are those of the build: after a tile
// was added to a *_triton.py, the build first needs a line of choices.txt for each size it may be
// best at.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/gelu/gelu.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norm/norm.h"
#include "kernels/plan.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/softmax/softmax.h"
#include "kernels/triton/row.h"
#include "proto/common/status_macros.h"
#include "server/runtime/cuda/cuda_device.h"
#include "tests/bench/cuda_timing.h"
#include "tests/kernels/device_array.h"

namespace warpcall::bench {
namespace {

using testing::DeviceArray;

constexpr char kHeader[] =
    "# Which tile a problem takes: that of the nearest line that fits it, sizes compared by their "
    "ratios.\n"
    "#   gelu TYPE elements TILE; softmax, layernorm and rmsnorm TYPE columns TILE; matmul and "
    "linear "
    "TYPE m n k\n"
    "#   TILE\n"
    "# Written by tests/bench/triton_choices.cc from what it measured on %s.\n";

// Rows are as many as make a tensor of this many elements.
constexpr int64_t kRowsElements = int64_t{1} << 26;

// A problem that a choice's sizes stand for.
struct Setup {
  const Op* op;
  Implementation row;
  std::vector<TensorSpec> inputs;
  std::vector<NamedAttribute> attributes;
};

Dims RowsOf(int64_t columns) { return {kRowsElements / columns, columns}; }

// Several where one line stands for problems that take different kernels.
std::vector<Setup> SetupsFor(const triton::KernelSet& set, const std::vector<int64_t>& sizes) {
  const DataType type = set.data_type;
  if (set.op == "gelu") return {{&GeluOp(), gelu::TritonGeluRow(), {{type, {sizes[0]}}}, {}}};
  if (set.op == "softmax")
    return {{&SoftmaxOp(), softmax::TritonSoftmaxRow(), {{type, RowsOf(sizes[0])}}, {}}};
  const TensorSpec vector = {type, {sizes[0]}};
  if (set.op == "layernorm")
    return {{&LayernormOp(),
             norm::TritonLayernormRow(),
             {{type, RowsOf(sizes[0])}, vector, vector},
             {}}};
  if (set.op == "rmsnorm")
    return {{&RmsnormOp(), norm::TritonRmsnormRow(), {{type, RowsOf(sizes[0])}, vector}, {}}};
  if (set.op == "linear")
    return {{&LinearOp(),
             linear::TritonLinearRow(),
             {{type, {sizes[0], sizes[2]}}, {type, {sizes[1], sizes[2]}}, {type, {sizes[1]}}},
             {{"activation", std::string("gelu")}}}};
  std::vector<Setup> setups;
  for (const char* const precision : {"ieee", "tf32"}) {
    if (type != DataType::kFloat32 && std::string(precision) == "tf32") continue;
    setups.push_back({&MatmulOp(),
                      matmul::TritonMatmulRow(),
                      {{type, {sizes[0], sizes[2]}}, {type, {sizes[2], sizes[1]}}},
                      {{"precision", std::string(precision)}}});
  }
  return setups;
}

// A problem's operands in device memory, in enough copies to leave the L2.
class OperandSets {
 public:
  static absl::StatusOr<OperandSets> Create(const Problem& problem,
                                            const DeviceProperties& device) {
    constexpr int64_t kSetsMax = 64;
    int64_t bytes = 1;
    for (const TensorSpec& spec : problem.inputs) bytes += static_cast<int64_t>(spec.bytes());
    for (const TensorSpec& spec : problem.outputs) bytes += static_cast<int64_t>(spec.bytes());
    OperandSets sets;
    for (int64_t i = 0; i < std::min(5 * device.l2_bytes / bytes + 1, kSetsMax); ++i) {
      Operands operands;
      for (const TensorSpec& spec : problem.inputs) {
        ASSIGN_OR_RETURN(void* const memory, sets.Allocate(spec.bytes()));
        RETURN_IF_ERROR(FillNormal(spec, static_cast<uint64_t>(i) + 1, memory));
        operands.inputs.push_back(memory);
      }
      for (const TensorSpec& spec : problem.outputs) {
        ASSIGN_OR_RETURN(void* const memory, sets.Allocate(spec.bytes()));
        operands.outputs.push_back(memory);
      }
      sets.operands_.push_back(std::move(operands));
    }
    return sets;
  }

  const Operands& operator[](int i) const {
    return operands_[static_cast<size_t>(i) % operands_.size()];
  }

 private:
  absl::StatusOr<void*> Allocate(size_t bytes) {
    ASSIGN_OR_RETURN(DeviceArray array, DeviceArray::Create(bytes));
    memory_.push_back(std::move(array));
    return memory_.back().data();
  }

  std::vector<DeviceArray> memory_;
  std::vector<Operands> operands_;
};

class Chooser {
 public:
  explicit Chooser(CudaDevice* device) : device_(device) {
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  ~Chooser() { cudaStreamDestroy(stream_); }

  // The fastest tile.
  absl::StatusOr<std::string> Choose(const triton::KernelSet& set, const Setup& setup) {
    ASSIGN_OR_RETURN(const Problem problem, MakeProblem(*setup.op, setup.inputs, setup.attributes));
    const DeviceProperties& device = device_->properties();
    RETURN_IF_ERROR(setup.row.supports(problem, device));
    ASSIGN_OR_RETURN(const OperandSets operands, OperandSets::Create(problem, device));
    std::vector<int> variants;
    std::vector<Candidate> candidates;
    for (size_t v = 0; v < set.kernels.size(); ++v) {
      const auto variant = static_cast<int>(v);
      const absl::StatusOr<PlanPtr> plan = setup.row.plan(
          problem, {.device = &device, .libraries = device_->libraries(), .variant = variant});
      if (absl::IsInvalidArgument(plan.status()) || absl::IsUnimplemented(plan.status())) continue;
      RETURN_IF_ERROR(plan.status());
      variants.push_back(variant);
      candidates.emplace_back().enqueue = [&operands, plan = *plan](int i, cudaStream_t stream) {
        LaunchContext context;
        context.stream = stream;
        return plan->Enqueue(operands[i], context);
      };
    }
    Time(candidates, stream_);
    return FastestOf(set, variants, candidates);
  }

 private:
  static absl::StatusOr<std::string> FastestOf(const triton::KernelSet& set,
                                               const std::vector<int>& variants,
                                               const std::vector<Candidate>& candidates) {
    const Candidate* fastest = nullptr;
    std::string tile;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const triton::CompiledKernel& kernel = set.kernels[static_cast<size_t>(variants[i])];
      RETURN_IF_ERROR(candidates[i].status);
      std::fprintf(stderr, "    %-28s %10.2f us\n", kernel.variant.c_str(),
                   candidates[i].seconds * 1e6);
      if (fastest != nullptr && fastest->seconds <= candidates[i].seconds) continue;
      fastest = &candidates[i];
      tile = kernel.tile;
    }
    if (fastest == nullptr) return absl::UnimplementedError("no variant takes it");
    return tile;
  }

  CudaDevice* const device_;
  cudaStream_t stream_ = nullptr;
};

absl::Status PrintChoices(const triton::KernelSet& set, Chooser* chooser) {
  std::vector<std::vector<int64_t>> measured;
  for (const triton::Choice& choice : set.choices) {
    if (std::find(measured.begin(), measured.end(), choice.sizes) != measured.end()) continue;
    measured.push_back(choice.sizes);
    for (const Setup& setup : SetupsFor(set, choice.sizes)) {
      const std::string problem = absl::StrCat(set.op, " ", DataTypeName(set.data_type), " ",
                                               absl::StrJoin(choice.sizes, " "));
      std::fprintf(stderr, "%s\n", problem.c_str());
      ASSIGN_OR_RETURN(const std::string tile, chooser->Choose(set, setup));
      std::printf("%s %s\n", problem.c_str(), tile.c_str());
    }
  }
  return absl::OkStatus();
}

absl::Status Main() {
  ASSIGN_OR_RETURN(const std::unique_ptr<CudaDevice> device, CudaDevice::Open(0));
  Chooser chooser(device.get());
  std::printf(kHeader, device->properties().description.c_str());
  for (const char* const op : {"gelu", "softmax", "layernorm", "rmsnorm", "matmul", "linear"}) {
    for (const DataType type : kDataTypes) {
      ASSIGN_OR_RETURN(const triton::KernelSet* const set, triton::KernelsOf(op, type));
      RETURN_IF_ERROR(PrintChoices(*set, &chooser));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace warpcall::bench

int main() {
  const absl::Status status = warpcall::bench::Main();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
