#include "kernels/compiled/compiler.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/compiled/nvrtc.h"
#include "kernels/cuda/cuda_status.h"
#include "proto/common/status_macros.h"

namespace warpcall::compiled {
namespace {

using cuda::LoadedKernel;
using cuda::ToStatus;

// Enough for the first errors, which are the most useful.
constexpr size_t kLogBytesMax = 2000;

// Returns NVRTC's target of the current device.
absl::StatusOr<std::string> CurrentTarget() {
  int device = 0;
  int major = 0;
  int minor = 0;
  RETURN_IF_ERROR(ToStatus(cudaGetDevice(&device), "asking for the current device"));
  for (const auto& [attribute, value] : {std::pair(cudaDevAttrComputeCapabilityMajor, &major),
                                         std::pair(cudaDevAttrComputeCapabilityMinor, &minor)})
    RETURN_IF_ERROR(ToStatus(cudaDeviceGetAttribute(value, attribute, device),
                             "asking for the device's architecture"));
  ASSIGN_OR_RETURN(const Nvrtc* const nvrtc, LoadNvrtc());
  return nvrtc->TargetOf(10 * major + minor);
}

absl::StatusOr<CubinPtr> Load(const Program& program, const std::string& image) {
  ASSIGN_OR_RETURN(LoadedKernel loaded, LoadedKernel::Load(image, program.entry));
  RETURN_IF_ERROR(loaded.MakeReady().status());
  return std::make_shared<const CompiledKernel>(program, image, std::move(loaded));
}

std::unique_ptr<Cubins> CubinsFor(const absl::StatusOr<std::string>& target,
                                  const std::string& cache_folder) {
  if (!target.ok()) return nullptr;
  const Nvrtc* const nvrtc = *LoadNvrtc();
  // An unrounded product would be finite where the definition has infinity. Functions without an
  // execution space in the source are compiled for the GPU.
  const std::vector<std::string> options = {absl::StrCat("--gpu-architecture=", *target),
                                            "--fmad=false", "-default-device"};
  Cubins::Options cubins;
  cubins.compiler = absl::StrCat("NVRTC ", nvrtc->version(), " ", absl::StrJoin(options, " "));
  cubins.compile = [nvrtc, options, name = cubins.compiler, compile = GetCompileFunction()](
                       const std::string& text) -> absl::StatusOr<std::string> {
    const CudaSource source = {.text = text, .options = options};
    absl::StatusOr<CudaCode> code = compile != nullptr ? compile(source) : nvrtc->Compile(source);
    if (code.ok()) return std::move(code->cubin);
    if (!IsCompileError(code.status())) return std::move(code).status();
    return AsCompileError(absl::InternalError(
        absl::StrCat(name, ": ", ClippedLog(code.status().message(), kLogBytesMax))));
  };
  cubins.load = Load;
  if (!cache_folder.empty())
    if (absl::StatusOr<DiskCache> disk = DiskCache::Open(cache_folder); disk.ok())
      cubins.disk = *std::move(disk);
  return std::make_unique<Cubins>(std::move(cubins));
}

}  // namespace

absl::Status CheckCompiles(const DeviceProperties& device) {
  ASSIGN_OR_RETURN(const Nvrtc* const nvrtc, LoadNvrtc());
  return nvrtc->CheckTarget(device.architecture);
}

Compiler::Compiler(const std::string& cache_folder)
    : target_(CurrentTarget()), cubins_(CubinsFor(target_, cache_folder)) {}

Compiler::~Compiler() = default;

absl::StatusOr<std::shared_ptr<const CompiledKernel>> Compiler::Get(const Program& program,
                                                                    const StopFlag* stop) {
  if (cubins_ == nullptr) return target_.status();
  ASSIGN_OR_RETURN(CubinPtr cubin, cubins_->Get(program, stop));
  return std::static_pointer_cast<const CompiledKernel>(std::move(cubin));
}

}  // namespace warpcall::compiled
