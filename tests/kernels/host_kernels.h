// CUDA C++, compiled for the host with threads in a GPU's place.
#pragma once

#include <string>

#include "kernels/expression/cuda_source.h"
#include "kernels/manifest/kernel_manifest.h"
#include "tests/temp_folder.h"

namespace warpcall::testing {

class HostKernels {
 public:
  HostKernels();
  ~HostKernels();

  // The number of a generated kernel of so many inputs.
  int Add(const expression::CudaKernel& kernel, size_t inputs);
  // The number of an extern "C" kernel that users write, whose elements are `T`.
  int Add(const std::string& source, const std::string& entry, DataType type);

  // Compiles all kernels added. Returns false where the machine has no compiler, and under a tool
  // (WARPCALL_TEST_ELEMENTS_MAX), which could not see into this compiler's code.
  bool Compile();

  // REQUIRES: Compile returned true.
  void Run(int number, const void* const* inputs, void* output) const;
  // Of a kernel that users write: a block is one row of threads. Returns false if the kernel's
  // parameters differ in size or number. REQUIRES: Compile returned true.
  bool Launch(int number, const manifest::KernelLaunch& launch, const Operands& operands) const;

 private:
  // Adds `source`, its kernel `entry` renamed, and what calls it.
  int AddSource(const std::string& source, const std::string& entry, const std::string& caller);

  const TempFolder folder_;
  std::string source_;
  int count_ = 0;
  void* loaded_ = nullptr;
};

}  // namespace warpcall::testing
