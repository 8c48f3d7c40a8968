// The rows that tests of variants are about.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/op.h"
#include "kernels/registry.h"

namespace warpcall::testing {

// A row with variants in one of its data types.
struct VariantRow {
  const Kernel* kernel;
  const Implementation* row;
  DataType type;

  std::string Name() const;  // "matmul mma_tiled bfloat16"
  std::vector<std::string> Names() const { return row->variant_names(type); }
  // Returns OK if the variant takes `problem`, or the reason why it does not.
  absl::Status Takes(const Problem& problem, int variant) const;
  // The row's own choice for `problem`, which it supports.
  int Chosen(const Problem& problem) const;
  // Properties of the device that it is for; a made-up H200 where there is no GPU.
  const DeviceProperties& Device() const;
};

// All that this build has.
std::vector<VariantRow> RowsWithVariants();

// 132 multiprocessors of compute capability 9.0.
const DeviceProperties& MadeUpH200();

// The rows of `kernel` that can run here. WARPCALL_TEST_DEVICE_KIND=cuda leaves the CPU's rows out,
// "cpu" the GPU's; WARPCALL_TEST_ROW leaves out all but the rows of that name.
bool RunsHere(const Implementation& row);

// Computes expected results: a thread for each of the machine's, up to 16.
cpu::ThreadPool& TruthPool();

// WARPCALL_TEST_ELEMENTS_MAX leaves out problems with larger inputs, for runs under tools that slow
// them down; 0: none.
int64_t TestElementsMax();

}  // namespace warpcall::testing
