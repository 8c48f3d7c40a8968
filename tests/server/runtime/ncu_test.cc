// Our occupancies against those of Nsight Compute, which looks at the same launch in a process of
// its own (warpcall_row_launcher).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/common/status_macros.h"
#include "tests/server/runtime/gpu_fixture.h"
#include "tests/server/runtime/ncu_report.h"

namespace warpcall::testing {
namespace {

constexpr char kTheoretical[] = "sm__maximum_warps_per_active_cycle_pct";
constexpr char kAchieved[] = "sm__warps_active.avg.pct_of_peak_sustained_active";
constexpr char kSm[] = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
constexpr char kDram[] = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";

struct Output {
  int status = -1;
  std::string text;
};

Output Shell(const std::string& command) {
  Output output;
  FILE* const pipe = popen(absl::StrCat(command, " 2>&1").c_str(), "r");
  if (pipe == nullptr) return output;
  char buffer[4096];
  for (size_t bytes; (bytes = fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    output.text.append(buffer, bytes);
  const int status = pclose(pipe);
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

std::string NcuCommand(const RowRequest& request) {
  const auto launcher =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "warpcall_row_launcher";
  return absl::StrCat("ncu --clock-control none --section Occupancy --csv --page raw --metrics ",
                      absl::StrJoin({kTheoretical, kAchieved, kSm, kDram}, ","), " ",
                      launcher.string(), " ", absl::StrJoin(WordsOf(request), " "));
}

class NcuTest : public GpuTest {
 protected:
  // Percentages of the row's only kernel.
  struct Figures {
    double theoretical = 0;
    double achieved = 0;
    double sm = 0;
    double dram = 0;
  };

  absl::StatusOr<Figures> Ours(const RowRequest& request) {
    ASSIGN_OR_RETURN(const auto row, LaunchedRow::Create(device_.get(), request));
    ASSIGN_OR_RETURN(const LaunchShape shape, row->Shape());
    ASSIGN_OR_RETURN(const auto profiler, device_->CreateProfiler());
    ASSIGN_OR_RETURN(const auto counters, profiler->Count([&] {
      RETURN_IF_ERROR(row->Launch());
      return row->Synchronize();
    }));
    if (counters.size() != 1)
      return absl::InternalError(absl::StrCat(counters.size(), " kernels, wanted one"));
    return Figures{100 * shape.theoretical_occupancy, 100 * counters[0].achieved_occupancy,
                   100 * counters[0].sm_throughput, 100 * counters[0].dram_throughput};
  }

  static absl::StatusOr<Figures> Theirs(const std::string& report) {
    ASSIGN_OR_RETURN(const std::vector<NcuKernel> kernels, ParseNcu(report));
    const NcuKernel& kernel = kernels.back();  // those before it prepared
    Figures figures;
    ASSIGN_OR_RETURN(figures.theoretical, NcuNumber(kernel, kTheoretical));
    ASSIGN_OR_RETURN(figures.achieved, NcuNumber(kernel, kAchieved));
    ASSIGN_OR_RETURN(figures.sm, NcuNumber(kernel, kSm));
    ASSIGN_OR_RETURN(figures.dram, NcuNumber(kernel, kDram));
    return figures;
  }
};

TEST_F(NcuTest, AgreesAboutOccupancy) {
  constexpr int kCommandNotFound = 127;
  if (Shell("ncu --version").status == kCommandNotFound) GTEST_SKIP() << "there is no ncu here";
  // All of ncu's first: two profilers at once get in each other's way.
  std::vector<Figures> theirs;
  for (const RowRequest& request : WatchedRows()) {
    const std::string command = NcuCommand(request);
    const Output report = Shell(command);
    if (absl::StrContains(report.text, "ERR_NVGPUCTRPERM")) GTEST_SKIP() << report.text;
    ASSERT_EQ(report.status, 0) << command << "\n" << report.text;
    const auto figures = Theirs(report.text);
    ASSERT_TRUE(figures.ok()) << command << "\n" << figures.status();
    theirs.push_back(*figures);
  }
  std::printf("  in %%:    theoretical           achieved           sm                 dram\n");
  for (size_t i = 0; i < theirs.size(); ++i) {
    const RowRequest request = WatchedRows()[i];
    SCOPED_TRACE(request.kernel);
    const auto ours = Ours(request);
    ASSERT_TRUE(ours.ok()) << ours.status();
    std::printf("  %-8s", request.kernel.c_str());
    for (const auto figure :
         {&Figures::theoretical, &Figures::achieved, &Figures::sm, &Figures::dram})
      std::printf(" ours %6.2f ncu %6.2f", (*ours).*figure, theirs[i].*figure);
    std::printf("\n");
    std::fflush(stdout);
    EXPECT_NEAR(ours->theoretical, theirs[i].theoretical, 0.1);
    EXPECT_NEAR(ours->achieved, theirs[i].achieved, 5);
  }
}

}  // namespace
}  // namespace warpcall::testing
