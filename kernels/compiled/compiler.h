// CUDA C++ compiled at run time, for one device, and loaded there.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/compiled/program.h"
#include "kernels/device_properties.h"

namespace warpcall::compiled {

// A kernel on the compiler's device, ready to be launched even while a graph is captured. A plan
// keeps it, and so it stays until the plan's last launch has run.
class CompiledKernel final : public Cubin {
 public:
  CompiledKernel(Program program, std::string image);
  ~CompiledKernel() override;

  cudaKernel_t kernel() const { return kernel_; }

 private:
  friend class Compiler;

  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
};

// For `supports` of rows that are compiled: OK, or UNIMPLEMENTED with the reason why nothing can be
// compiled for the device here.
absl::Status CheckCompiles(const DeviceProperties& device);

// Thread-safe. Its device is current in every thread that constructs, uses or destroys it.
class Compiler {
 public:
  Compiler();
  ~Compiler();

  // Waits while the program is compiled, on a thread for that, once however many ask. The compiler
  // is told --fmad=false and the device's architecture. UNIMPLEMENTED as Available; INTERNAL with
  // the compiler's log, cut to fit, when it refuses the source.
  absl::StatusOr<std::shared_ptr<const CompiledKernel>> Get(const Program& program);

  // OK, or UNIMPLEMENTED with the reason why nothing can be compiled.
  absl::Status Available() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace warpcall::compiled
