// The rows of an op that can run here, on every device and instruction set.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/check/truth.h"
#include "tests/kernels/run_row.h"

namespace warpcall::testing {

// One op in one data type.
struct CatalogEntry {
  const Op* op;
  DataType data_type;
};

// All that this build has, and their names, for a test with a parameter.
std::vector<CatalogEntry> Catalog();
std::string CatalogName(const ::testing::TestParamInfo<CatalogEntry>& info);

// A row, and the instruction set to run it with.
struct TestedRow {
  const Implementation* row;
  int64_t target;
  std::string name;  // names both
};

// Rows written for vectors once for each instruction set that this CPU has.
// WARPCALL_TEST_DEVICE_KIND=cuda leaves the CPU's rows out, "cpu" the GPU's; WARPCALL_TEST_ROW
// leaves out all but the rows of that name.
std::vector<TestedRow> TestedRows(const Op& op);

// OK, or why the row does not take the problem on the device that RunRow uses.
absl::Status Supports(const TestedRow& tested, const Problem& problem);

// RunRow with the instruction set.
absl::StatusOr<std::vector<Memory>> RunTested(const TestedRow& tested, const Problem& problem,
                                              absl::Span<const Memory> inputs, uint8_t poison);

// Outputs by the definition, with the op's bounds, or without bounds if nothing has to be rounded
// before the result.
Truth TruthFor(const Op& op, const Problem& problem, absl::Span<const Memory> inputs);
Truth ExactTruthFor(const Op& op, const Problem& problem, absl::Span<const Memory> inputs);

// Every row that takes `problem` meets `truth`.
void ExpectTruth(const Op& op, const Problem& problem, absl::Span<const Memory> inputs,
                 const Truth& truth);

// WARPCALL_TEST_ELEMENTS_MAX leaves out larger problems, for runs under tools that slow them down.
bool IsSmallEnough(const Problem& problem);

}  // namespace warpcall::testing
