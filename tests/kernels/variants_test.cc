// The variants that rows offer: their names, the one that a problem
// takes and those that could take it. Nothing runs here except
// refusals, so a build for GPUs shows its variants without a GPU too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/linear/linear.h"
#include "kernels/plan.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/variant_problems.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::testing {
namespace {

using ::testing::IsEmpty;

bool IsRefusal(const absl::Status& status) {
  return (absl::IsInvalidArgument(status) || absl::IsUnimplemented(status)) &&
         !status.message().empty();
}

// Names whose flag is not set.
std::vector<std::string> Missing(const std::vector<std::string>& names,
                                 const std::vector<bool>& seen) {
  std::vector<std::string> missing;
  for (size_t i = 0; i < names.size(); ++i)
    if (!seen[i]) missing.push_back(names[i]);
  return missing;
}

TEST(VariantsTest, NamesAreDistinctAndNotEmpty) {
  ASSERT_FALSE(RowsWithVariants().empty());
  std::map<const Implementation*, size_t> most;  // variants per row, at most over its types
  for (const VariantRow& row : RowsWithVariants()) {
    SCOPED_TRACE(row.Name());
    const std::vector<std::string> names = row.Names();
    EXPECT_FALSE(names.empty());
    most[row.row] = std::max(most[row.row], names.size());
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
    EXPECT_FALSE(absl::c_linear_search(names, ""));
  }
  for (const auto& [row, count] : most) EXPECT_GT(count, 1u) << row->name;
}

// Rows of kernels of ours that go one way for each data type; all others name
// their variants. Triton's may be none in this build.
TEST(VariantsTest, RowsWithSeveralKernelsNameThem) {
  const std::set<std::string> single = {
      "fused chain_of_kernels",      "fused compiled_expression", "gelu compiled_gelu",
      "identity element_per_thread", "identity vector_copy",      "identity device_memcpy",
      "layernorm chain_of_kernels",  "layernorm compiled_norm",   "linear chain_of_kernels",
      "matmul thread_per_output",    "rmsnorm chain_of_kernels",  "rmsnorm compiled_norm",
      "softmax compiled_softmax",
  };
  for (const Kernel& kernel : FullRegistry().kernels()) {
    for (const int id : kernel.rows) {
      const Implementation& row = FullRegistry().rows()[id].implementation;
      if (row.device_kind == DeviceKind::kCpu || row.family == Family::kLibrary) continue;
      const std::string name = absl::StrCat(kernel.op->name, " ", row.name);
      EXPECT_EQ(row.variant_names == nullptr, single.contains(name))
          << name << ": name its kernels in variant_names, or the row in `single` if it has one";
    }
  }
}

TEST(VariantsTest, TheChoiceIsListedTakesTheProblemAndHasItsWorkspace) {
  for (const VariantRow& row : RowsWithVariants()) {
    const int count = static_cast<int>(row.Names().size());
    const DeviceProperties& device = row.Device();
    int supported = 0;
    for (const VariantProblem& problem : VariantProblems(*row.kernel->op, row.type)) {
      SCOPED_TRACE(absl::StrCat(row.Name(), ": ", problem.name));
      if (!row.row->supports(problem.problem, device).ok()) continue;
      ++supported;
      const int chosen = row.Chosen(problem.problem);
      ASSERT_GE(chosen, 0);
      ASSERT_LT(chosen, count);
      const auto taken = row.row->plan(problem.problem, {.device = &device, .variant = chosen});
      ASSERT_TRUE(taken.ok()) << taken.status();
      EXPECT_EQ((*taken)->traits().workspace_bytes,
                (*row.row->plan(problem.problem, {.device = &device}))->traits().workspace_bytes);
    }
    EXPECT_GT(supported, 0) << row.Name();
  }
}

// A compiled variant that can never run is dead code; a variant that takes none of our problems is
// unproven.
TEST(VariantsTest, EveryVariantTakesSomeProblem) {
  for (const VariantRow& row : RowsWithVariants()) {
    const std::vector<std::string> names = row.Names();
    std::vector<bool> taken(names.size());
    for (const VariantProblem& problem : VariantProblems(*row.kernel->op, row.type)) {
      for (size_t v = 0; v < names.size(); ++v) {
        const absl::Status status = row.Takes(problem.problem, static_cast<int>(v));
        if (status.ok()) {
          taken[v] = true;
        } else {
          EXPECT_TRUE(IsRefusal(status)) << row.Name() << ", " << names[v] << ": " << status;
        }
      }
    }
    EXPECT_THAT(Missing(names, taken), IsEmpty()) << row.Name();
  }
}

TEST(VariantsTest, UnknownNumbersAreRefused) {
  for (const VariantRow& row : RowsWithVariants()) {
    const std::vector<VariantProblem> problems = VariantProblems(*row.kernel->op, row.type);
    const auto found = absl::c_find_if(problems, [&](const VariantProblem& problem) {
      return row.row->supports(problem.problem, row.Device()).ok();
    });
    ASSERT_NE(found, problems.end()) << row.Name();
    const Problem& problem = found->problem;
    for (const int number : {-2, static_cast<int>(row.Names().size())}) {
      const absl::Status status = row.Takes(problem, number);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << row.Name() << ": " << status;
      EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat(number))) << status;
    }
  }
}

// The kernels that large products are for.
TEST(VariantsTest, LargeProductsTakeTheLargestTile) {
  for (const VariantRow& row : RowsWithVariants()) {
    const bool is_tf32 = absl::EndsWith(row.row->name, "_tf32");
    const bool is_tiled = is_tf32 || absl::EndsWith(row.row->name, "_tiled");
    if (!is_tiled || row.row->device_kind == DeviceKind::kCpu) continue;
    for (const int64_t n : {4096, 8192}) {
      std::vector<TensorSpec> inputs(2, {row.type, {n, n}});
      if (row.kernel->op == &LinearOp()) inputs.push_back({row.type, {n}});
      std::vector<NamedAttribute> attributes;
      if (is_tf32) attributes.push_back({"precision", std::string("tf32")});
      const VariantProblem problem = NameProblem(*row.kernel->op, inputs, attributes);
      const int chosen = row.Chosen(problem.problem);
      ASSERT_NE(chosen, kRowsChoice) << row.Name();
      const std::string name = row.Names()[chosen];
      const bool is_narrow =
          row.type != DataType::kFloat32 && absl::StrContains(row.row->name, "register");
      EXPECT_TRUE(absl::StartsWith(name, is_narrow ? "128x128x" : "128x256x"))
          << row.Name() << ": " << problem.name << " takes " << name;
      EXPECT_TRUE(absl::EndsWith(name, " whole")) << name;
    }
  }
}

}  // namespace
}  // namespace warpcall::testing
