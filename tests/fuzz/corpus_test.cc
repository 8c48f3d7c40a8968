// The fuzzers' targets without libFuzzer, so that every compiler and sanitizer runs them: over
// their corpora, which hold inputs that once went wrong, and over seeded mutations of these.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "tests/fuzz/targets.h"
#include "tests/proto/fragments.h"

namespace warpcall::testing {
namespace {

constexpr int kMutations = 2000;

int NumberFromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  int number = 0;
  return text != nullptr && absl::SimpleAtoi(text, &number) ? number : otherwise;
}

// The files of a target's corpus in the order of their names; the empty input is always there.
std::vector<std::string> Corpus(const std::string& name) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(FUZZ_CORPUS) / name))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> inputs = {""};
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

class FuzzCorpusTest : public ::testing::TestWithParam<FuzzTarget> {
 protected:
  FuzzCorpusTest() : corpus_(Corpus(GetParam().name)) {}

  // False at the first input that goes wrong.
  bool Right(const std::string& input) const {
    const std::string wrong = GetParam().run(input);
    EXPECT_EQ(wrong, "") << "input: \"" << absl::CHexEscape(input) << '"';
    return wrong.empty();
  }

  const std::vector<std::string> corpus_;
};

TEST_P(FuzzCorpusTest, CorpusIsTakenRightly) {
  ASSERT_GT(corpus_.size(), 1u);
  for (const std::string& input : corpus_) Right(input);
}

TEST_P(FuzzCorpusTest, MutationsOfItAreTakenRightly) {
  const int seed = NumberFromEnvironment("WARPCALL_TEST_SEED", 20261122);
  RecordProperty("seed", seed);
  std::mt19937 random(static_cast<uint32_t>(seed));
  const int mutations = NumberFromEnvironment("WARPCALL_FUZZ_MUTATIONS", kMutations);
  for (int i = 0; i < mutations; ++i) {
    const std::string& base = corpus_[1 + random() % (corpus_.size() - 1)];
    if (base.empty()) continue;
    ASSERT_TRUE(Right(Mutated(base, random))) << "mutation " << i << " of seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpusTest, ::testing::ValuesIn(FuzzTargets()),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace warpcall::testing
