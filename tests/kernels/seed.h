// Random data for kernel tests, which a seed repeats.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "kernels/check/cases.h"
#include "tests/kernels/run_row.h"

namespace warpcall::testing {

// WARPCALL_TEST_SEED when it is set, fresh otherwise; constant within a process and printed on
// first use.
uint64_t RunSeed();

// Data for `spec`; the same for the same run seed and `label`, whatever else ran before.
Memory FilledInput(const TensorSpec& spec, Fill fill, absl::string_view label);

}  // namespace warpcall::testing
