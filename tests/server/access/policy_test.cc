#include "server/access/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/access/policies.h"
#include "server/access/policy_warnings.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ReplaceFile;
using Json = nlohmann::json;

const Policy::Names kMethods = {"Describe", "Execute", "ListKernels"};

std::vector<std::string> WarningsOf(const char* text, const PolicySurroundings& surroundings) {
  const auto table = PolicyTable::Parse(text, kMethods);
  EXPECT_TRUE(table.ok()) << table.status();
  return PolicyWarnings(*table, surroundings);
}

TEST(PolicyWarningsTest, NameWhatHasNoEffect) {
  const char* const text = R"({
    "default": {"kernels": ["softmax", "relu6"]},
    "principals": {"alice": {"kernels": ["gelu", "gellu"]}, "bobb": {}}})";
  PolicySurroundings surroundings = {.kernels = {"gelu", "softmax"}};
  const std::string unknown =
      "the default policy names kernel relu6, which this server does not have";
  const std::string slip =
      "the policy of alice names kernel gellu, which this server does not have; "
      "did you mean gelu?";
  EXPECT_THAT(
      WarningsOf(text, surroundings),
      ElementsAre(unknown, slip, HasSubstr("the policies of 2 principals apply to nobody")));
  surroundings.tokens = {"alice", "bob"};
  EXPECT_THAT(WarningsOf(text, surroundings),
              ElementsAre(unknown, slip,
                          "the policy of bobb applies to nobody: no token has that name; "
                          "did you mean bob?"));
  surroundings.has_certificates = true;  // whose subjects may be anything
  EXPECT_THAT(WarningsOf(text, surroundings), ElementsAre(unknown, slip));
}

TEST(PolicyWarningsTest, ATokenNeedsAPolicyOrADefault) {
  const PolicySurroundings surroundings = {.tokens = {{"alice", "bob"}}, .kernels = {"gelu"}};
  EXPECT_THAT(WarningsOf(R"({"principals": {"alice": {"kernels": ["gelu"]}}})", surroundings),
              ElementsAre(HasSubstr("bob has a token and may do nothing")));
  EXPECT_TRUE(WarningsOf(R"({"default": {}, "principals": {"alice": {}}})", surroundings).empty());
  EXPECT_TRUE(WarningsOf(R"({"default": {}})", {}).empty());
}

TEST(PolicyTableTest, GivesEachItsOwnAndOthersTheDefault) {
  const auto table = PolicyTable::Parse(R"({
    "default": {"methods": ["ListKernels"], "requests_in_flight_max": 2},
    "principals": {
      "alice": {"kernels": ["gelu", "softmax"], "implementations": ["cuda"], "devices": ["cuda:0"],
                "share": 2.5, "bytes_in_flight_max": 1048576},
      "CN=bob": {}}})",
                                        kMethods);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->size(), 2u);
  const Policy& alice = *table->Of("alice");
  EXPECT_THAT(*alice.kernels, ElementsAre("gelu", "softmax"));
  EXPECT_THAT(*alice.implementations, ElementsAre("cuda"));
  EXPECT_THAT(*alice.devices, ElementsAre("cuda:0"));
  EXPECT_FALSE(alice.methods.has_value());  // not the default's: an entry stands by itself
  EXPECT_EQ(alice.share, 2.5);
  EXPECT_EQ(alice.bytes_in_flight_max, 1 << 20);
  EXPECT_EQ(alice.requests_in_flight_max, INT64_MAX);
  EXPECT_FALSE(table->Of("CN=bob")->methods.has_value());
  for (const char* other : {"", "carol", "alic", "CN=alice"}) {
    EXPECT_THAT(*table->Of(other)->methods, ElementsAre("ListKernels")) << other;
    EXPECT_EQ(table->Of(other)->requests_in_flight_max, 2);
  }
  EXPECT_EQ(PolicyTable::Parse(R"({"principals": {"alice": {}}})", kMethods)->Of("bob"), nullptr);
}

TEST(PolicyTableTest, SaysWhatIsWrongAndWhere) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {"", "parse error"},
      {"{", "parse error"},
      {"[]", "it is no object"},
      {"{}", "so nobody could call"},
      {R"({"principals": {}})", "so nobody could call"},
      {R"({"principals": []})", "\"principals\" is no object"},
      {R"({"defaults": {}})", "\"defaults\" is unknown"},
      {R"({"default": {}, "default": {}})", "\"default\" stands twice"},
      {R"({"principals": {"a": {"share": 1}, "a": {"share": 2}}})", "\"a\" stands twice"},
      {R"({"principals": {"": {}}})", "a name has 0 bytes; it has to be 1 to 1024"},
      {R"({"principals": {"a": 1}})", "principals.a: is no object"},
      {R"({"principals": {"a": {"kernel": ["gelu"]}}})", "principals.a: \"kernel\" is unknown"},
      {R"({"default": {"kernels": "gelu"}})", "default.kernels: is no list of names"},
      {R"({"default": {"kernels": [1]}})", "default.kernels: is no list of names"},
      {R"({"default": {"kernels": ["gelu", "gelu"]}})", "\"gelu\" stands there twice"},
      {R"({"default": {"methods": ["Excute"]}})",
       "\"Excute\" is no method; available: Describe, Execute, ListKernels"},
      {R"({"default": {"share": 0}})", "default.share: is no number of 0.01 to 100"},
      {R"({"default": {"share": 101}})", "is no number of 0.01 to 100"},
      {R"({"default": {"share": "1"}})", "is no number of 0.01 to 100"},
      {R"({"default": {"requests_in_flight_max": 0}})", "is no whole number of 1 to 1000000"},
      {R"({"default": {"requests_in_flight_max": 1.5}})", "is no whole number of 1 to 1000000"},
      {R"({"default": {"bytes_in_flight_max": -1}})", "is no whole number of 1 to "},
      {R"({"default": {"bytes_in_flight_max": 1e300}})", "is no whole number of 1 to "},
  };
  for (const auto& wrong : kCases) {
    const absl::Status status = PolicyTable::Parse(wrong.text, kMethods).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong.text;
    EXPECT_THAT(status.message(), HasSubstr(wrong.message)) << wrong.text;
  }
}

// A file that somebody might write, and its meaning; perhaps with a mistake.
class RandomPolicies {
 public:
  explicit RandomPolicies(uint64_t seed) : random_(seed) {}

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  Json Entry() {
    Json entry = Json::object();
    if (Below(2) == 0) entry["share"] = 0.25 * (1 + Below(40));
    if (Below(2) == 0) entry["requests_in_flight_max"] = 1 + Below(100);
    if (Below(2) == 0) entry["bytes_in_flight_max"] = 1 + Below(1 << 30);
    if (Below(2) == 0) entry["kernels"] = Json::array();
    for (const char* name : {"gelu", "softmax", "matmul"})
      if (entry.contains("kernels") && Below(2) == 0) entry["kernels"].push_back(name);
    return entry;
  }

  Json File() {
    Json file = {{"principals", Json::object()}};
    for (const std::string& name : Probes())
      if (!name.empty() && Below(2) == 0) file["principals"][name] = Entry();
    if (Below(2) == 0 || file["principals"].empty()) file["default"] = Entry();
    return file;
  }

  // Makes `file` one that has to be refused.
  void Spoil(Json* file) {
    Json& entry = (*file)["default"];
    if (entry.is_null()) entry = Json::object();
    const Json wrong[] = {Json(nullptr), Json("many"), Json(-1), Json(0), Json::array({1, 2})};
    const char* const keys[] = {"share", "requests_in_flight_max", "kernels", "unknown"};
    entry[keys[Below(4)]] = wrong[Below(5)];
  }

  static std::vector<std::string> Probes() { return {"", "alice", "bob", "CN=carol,O=Example"}; }

 private:
  std::mt19937_64 random_;
};

// The table's policy, written as in such a file.
Json Said(const Policy* policy) {
  if (policy == nullptr) return nullptr;
  Json entry = {{"share", policy->share},
                {"requests_in_flight_max", policy->requests_in_flight_max},
                {"bytes_in_flight_max", policy->bytes_in_flight_max}};
  if (policy->kernels.has_value()) {
    entry["kernels"] = Json::array();
    for (const std::string& name : *policy->kernels) entry["kernels"].push_back(name);
  }
  return entry;
}

// The entry that `file` means for the principal.
Json Meant(const Json& file, const std::string& name) {
  const Json& own = file["principals"];
  if (!own.contains(name) && !file.contains("default")) return nullptr;
  Json entry = own.contains(name) ? own[name] : file["default"];
  if (!entry.contains("share")) entry["share"] = 1.0;
  for (const char* key : {"requests_in_flight_max", "bytes_in_flight_max"})
    if (!entry.contains(key)) entry[key] = INT64_MAX;
  if (entry.contains("kernels")) std::sort(entry["kernels"].begin(), entry["kernels"].end());
  return entry;
}

TEST(PoliciesTest, AThousandFilesAreInForceWholeOrNotAtAll) {
  uint64_t seed = std::random_device()();
  if (const char* given = std::getenv("WARPCALL_TEST_SEED"); given != nullptr)
    ASSERT_TRUE(absl::SimpleAtoi(given, &seed));
  SCOPED_TRACE(absl::StrCat("WARPCALL_TEST_SEED=", seed));
  RandomPolicies random(seed);
  const testing::TempFolder folder;
  const std::string path = folder.Path("policies");
  Json in_force = random.File();
  ReplaceFile(path, in_force.dump());
  const auto policies = Policies::Open(path, kMethods);
  ASSERT_TRUE(policies.ok()) << policies.status();
  int taken = 0;
  for (int i = 0; i < 1000; ++i) {
    std::shared_ptr<const Policy> before[4];
    for (size_t p = 0; p < 4; ++p) before[p] = (*policies)->Of(RandomPolicies::Probes()[p]);
    Json file = random.File();
    const int kind = random.Below(3);  // right, wrong, or with a byte that is another
    if (kind == 1) random.Spoil(&file);
    std::string text = file.dump();
    if (kind == 2) text[static_cast<size_t>(random.Below(static_cast<int>(text.size())))] ^= 4;
    ReplaceFile(path, text);
    const absl::Status status = (*policies)->ReadAgain().status();
    if (kind < 2) EXPECT_EQ(status.ok(), kind == 0) << text << "\n" << status;
    if (status.ok()) ++taken;
    if (status.ok() && kind == 2) file = Json::parse(text);
    if (status.ok()) in_force = file;
    for (size_t p = 0; p < 4; ++p) {
      const std::string name = RandomPolicies::Probes()[p];
      const auto policy = (*policies)->Of(name);
      EXPECT_EQ(Said(policy.get()), Meant(in_force, name)) << name << " by " << text;
      if (!status.ok()) EXPECT_EQ(policy, before[p]);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(taken, 250);
  EXPECT_LT(taken, 900);
}

}  // namespace
}  // namespace warpcall
