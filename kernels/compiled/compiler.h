// CUDA C++ compiled at run time, for one device, and loaded there.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/compiled/counts.h"
#include "kernels/compiled/cubins.h"
#include "kernels/compiled/program.h"
#include "kernels/cuda/loaded_kernel.h"
#include "kernels/device_properties.h"

namespace warpcall::compiled {

// A kernel on the compiler's device, ready to be launched even while a graph is captured. A plan
// keeps the kernel, and the plan's user keeps the plan until the last launch has run.
class CompiledKernel final : public Cubin {
 public:
  CompiledKernel(Program program, std::string image, cuda::LoadedKernel loaded)
      : Cubin(std::move(program), std::move(image)), loaded_(std::move(loaded)) {}

  cudaKernel_t kernel() const { return loaded_.get(); }

 private:
  const cuda::LoadedKernel loaded_;
};

// For `supports` of rows that are compiled: OK, or UNIMPLEMENTED with the reason why nothing can be
// compiled for the device here.
absl::Status CheckCompiles(const DeviceProperties& device);

// Thread-safe. Its device is current in every thread that constructs, uses or destroys it.
class Compiler {
 public:
  // `cache_folder` holds what was compiled before, by this process or others: see DiskCache. Empty,
  // or a folder that can't be used: nothing is kept on disk.
  explicit Compiler(const std::string& cache_folder = "");
  ~Compiler();

  // Waits while a compiler thread compiles the program, once for all callers. CANCELLED if `stop`
  // is set meanwhile. The compiler gets --fmad=false and the device's architecture. Returns
  // Available's errors, and INTERNAL with the compiler's log, cut to fit, for a source that it
  // refuses.
  absl::StatusOr<std::shared_ptr<const CompiledKernel>> Get(const Program& program,
                                                            const StopFlag* stop = nullptr);

  // OK, or the reason why nothing can be compiled: UNIMPLEMENTED when the compiler is not there.
  absl::Status Available() const { return target_.status(); }

  Counts counts() const { return cubins_ == nullptr ? Counts() : cubins_->counts(); }

 private:
  const absl::StatusOr<std::string> target_;  // "sm_90a"
  const std::unique_ptr<Cubins> cubins_;      // null without a target
};

}  // namespace warpcall::compiled
