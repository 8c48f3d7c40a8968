#include "kernels/triton/row.h"

#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/launch.h"
#include "kernels/source/files.h"
#include "kernels/triton/embedded.h"
#include "kernels/triton/loader.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::triton {
namespace {

// Arguments of a kernel and hidden ones, which are null.
constexpr size_t kParametersMax = 24;

const absl::StatusOr<Manifest>& EmbeddedKernels() {
  static const auto& manifest =
      *new absl::StatusOr<Manifest>(ReadManifest(EmbeddedManifest(), EmbeddedCubins()));
  return manifest;
}

// Values of the kernel's parameters, eight bytes each; the kernel reads the bytes of its type.
struct Parameters {
  std::array<uint64_t, kParametersMax> values = {};
  size_t count = 0;
  std::vector<int> pointers;  // indices of the operands' addresses, in the operands' order
};

absl::StatusOr<Parameters> ParametersFor(const CompiledKernel& kernel, const Image& image,
                                         const Order& order) {
  Parameters parameters;
  parameters.count = image.parameter_bytes.size();
  if (parameters.count > kParametersMax)
    return absl::UnimplementedError(absl::StrCat("variant \"", kernel.variant, "\" has ",
                                                 parameters.count, " parameters; the limit is ",
                                                 kParametersMax));
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    const Argument& argument = kernel.arguments[i];
    if (argument.type == Argument::Type::kPointer) {
      parameters.pointers.push_back(static_cast<int>(i));
    } else if (IsInteger(argument)) {
      parameters.values[i] = static_cast<uint64_t>(ValueOf(order, argument.name));
    } else {
      parameters.values[i] = std::bit_cast<uint32_t>(FloatOf(order, argument.name));
    }
  }
  return parameters;
}

class KernelPlan final : public Plan {
 public:
  struct Launch {
    std::string op;
    const CompiledKernel* kernel;
    const Image* image;
    Blocks blocks;
    Parameters parameters;
    const DeviceProperties* device;
  };

  KernelPlan(int variant, Launch launch)
      : Plan({.variant = variant, .may_be_replayed = true}), launch_(std::move(launch)) {}

  absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
    ASSIGN_OR_RETURN(const cudaKernel_t kernel, Loaded());
    auto values = launch_.parameters.values;
    size_t taken = 0;
    for (const void* const input : operands.inputs) RETURN_IF_ERROR(Point(taken++, input, &values));
    for (const void* const output : operands.outputs)
      RETURN_IF_ERROR(Point(taken++, output, &values));
    WARPCALL_DCHECK(taken == launch_.parameters.pointers.size(), taken, launch_.op);
    void* addresses[kParametersMax];
    for (size_t i = 0; i < launch_.parameters.count; ++i) addresses[i] = &values[i];
    const cuda::Grid grid = GridOf();
    cudaLaunchConfig_t config = {};
    config.gridDim = grid.blocks;
    config.blockDim = grid.threads;
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = cuda::StreamOf(context);
    return cuda::ToStatus(cudaLaunchKernelExC(&config, kernel, addresses), "launching a kernel");
  }

  // The text that makes the op's kernels, beside what the row's file brings.
  std::vector<SourceFile> Sources() const override {
    return FilesOf(absl::StrCat("kernels/", launch_.op, "/", launch_.op, "_triton.py"));
  }
  MachineCode Code() const override { return {launch_.image->entry, launch_.image->cubin}; }

  // The kernel on the current device, which is the plan's. Thread-safe.
  const absl::StatusOr<cudaKernel_t>& Loaded() const {
    std::call_once(asked_, [this] { kernel_ = Loader::Get().Load(*launch_.image); });
    return kernel_;
  }

 private:
  // Gives the kernel the next operand's address.
  absl::Status Point(size_t operand, const void* address,
                     std::array<uint64_t, kParametersMax>* values) const {
    WARPCALL_CHECK(operand < launch_.parameters.pointers.size(), operand, launch_.op);
    const auto argument = static_cast<size_t>(launch_.parameters.pointers[operand]);
    const auto at = reinterpret_cast<uintptr_t>(address);
    const int64_t divisor = launch_.kernel->arguments[argument].divisible_by;
    if (at % static_cast<uintptr_t>(divisor) != 0)
      return absl::InternalError(
          absl::StrCat("operand ", operand, " is not aligned to ", divisor, " bytes"));
    (*values)[argument] = at;
    return absl::OkStatus();
  }

  cuda::Grid GridOf() const {
    return {.blocks = dim3(launch_.blocks.x, launch_.blocks.y, launch_.blocks.z),
            .threads = dim3(static_cast<unsigned>(launch_.image->threads)),
            .shared_bytes = launch_.image->shared_bytes};
  }

  absl::StatusOr<LaunchShape> AskShape() const override {
    ASSIGN_OR_RETURN(const cudaKernel_t kernel, Loaded());
    // The runtime takes a cudaKernel_t wherever it takes a function.
    return cuda::ShapeOf(cuda::LaunchedKernel(reinterpret_cast<void (*)()>(kernel), GridOf()),
                         *launch_.device);
  }

  const Launch launch_;
  mutable std::once_flag asked_;
  mutable absl::StatusOr<cudaKernel_t> kernel_;
};

}  // namespace

absl::StatusOr<const KernelSet*> KernelsOf(absl::string_view op, DataType data_type) {
  const absl::StatusOr<Manifest>& manifest = EmbeddedKernels();
  if (!manifest.ok()) return absl::UnimplementedError(manifest.status().message());
  if (!manifest->unavailable.empty())
    return absl::UnimplementedError(
        absl::StrCat("this build has no kernels of Triton's: ", manifest->unavailable));
  const KernelSet* const set = manifest->Find(op, data_type);
  if (set != nullptr) return set;
  return absl::UnimplementedError(absl::StrCat("this build has no kernels of Triton's for ", op,
                                               " in ", DataTypeName(data_type)));
}

std::vector<std::string> VariantNames(absl::string_view op, DataType data_type) {
  std::vector<std::string> names;
  const absl::StatusOr<const KernelSet*> set = KernelsOf(op, data_type);
  if (!set.ok()) return names;
  for (const CompiledKernel& kernel : (*set)->kernels) names.push_back(kernel.variant);
  return names;
}

absl::Status CheckSupported(absl::string_view op, DataType data_type, const Order& order,
                            const DeviceProperties& device) {
  ASSIGN_OR_RETURN(const KernelSet* const set, KernelsOf(op, data_type));
  return CheckTaken(*set, order, device);
}

absl::StatusOr<PlanPtr> PlanKernel(absl::string_view op, const Problem& problem, const Order& order,
                                   const PlanContext& context) {
  ASSIGN_OR_RETURN(const KernelSet* const set, KernelsOf(op, problem.inputs[0].data_type));
  int variant = context.variant;
  if (variant == kRowsChoice) {
    ASSIGN_OR_RETURN(variant, Choose(*set, order, *context.device));
  }
  RETURN_IF_ERROR(CheckVariantNumber(variant, static_cast<int>(set->kernels.size())));
  const CompiledKernel& kernel = set->kernels[static_cast<size_t>(variant)];
  ASSIGN_OR_RETURN(const Blocks blocks, BlocksFor(kernel, order, *context.device));
  const Image& image = *ImageFor(kernel, context.device->architecture);
  ASSIGN_OR_RETURN(Parameters parameters, ParametersFor(kernel, image, order));
  const size_t operands = problem.inputs.size() + problem.outputs.size();
  if (parameters.pointers.size() != operands)
    return absl::InternalError(absl::StrCat("variant \"", kernel.variant, "\" takes ",
                                            parameters.pointers.size(), " operands of ", operands));
  auto plan = std::make_shared<const KernelPlan>(
      variant, KernelPlan::Launch{std::string(op), &kernel, &image, blocks, std::move(parameters),
                                  context.device});
  if (context.libraries != nullptr) RETURN_IF_ERROR(plan->Loaded().status());
  return plan;
}

}  // namespace warpcall::triton
