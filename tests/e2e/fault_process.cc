#include "tests/e2e/fault_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace warpcall::testing {
namespace {

std::vector<std::string> CommandLine(const std::vector<std::string>& words,
                                     const std::string& tally_path) {
  std::vector<std::string> line = {FAULT_CLIENT_PATH};
  line.insert(line.end(), words.begin(), words.end());
  line.push_back(tally_path);
  return line;
}

}  // namespace

FaultProcess::FaultProcess(const std::vector<std::string>& words, std::vector<int>* totals)
    : tally_path_(
          absl::StrCat(::testing::TempDir(), "/fault_client-", getpid(), "-", rand(), ".tally")),
      totals_(totals),
      process_(CommandLine(words, tally_path_), "") {
  EXPECT_EQ(process_.first_line(), "ready");
}

FaultProcess::~FaultProcess() {
  process_.Signal(SIGTERM);
  EXPECT_EQ(process_.Wait(), 0);
  std::ifstream file(tally_path_);
  for (int& total : *totals_) {
    int count = 0;
    EXPECT_TRUE(file >> count) << tally_path_ << " has fewer counts than " << totals_->size();
    total += count;
  }
  unlink(tally_path_.c_str());
}

}  // namespace warpcall::testing
