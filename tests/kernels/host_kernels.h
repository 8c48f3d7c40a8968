// Generated CUDA C++, compiled for the host with threads in a GPU's place.
#pragma once

#include <string>

#include "kernels/expression/cuda_source.h"
#include "tests/temp_folder.h"

namespace warpcall::testing {

class HostKernels {
 public:
  HostKernels();
  ~HostKernels();

  // The number of a kernel of so many inputs.
  int Add(const expression::CudaKernel& kernel, size_t inputs);

  // Compiles all kernels added. Returns false where the machine has no compiler, and under a tool
  // (WARPCALL_TEST_ELEMENTS_MAX), which could not see into this compiler's code.
  bool Compile();

  // REQUIRES: Compile returned true.
  void Run(int number, const void* const* inputs, void* output) const;

 private:
  const TempFolder folder_;
  std::string source_;
  int count_ = 0;
  void* loaded_ = nullptr;
};

}  // namespace warpcall::testing
