// The principal that a call counts as, and the effect of that on its turn.
#include "server/access/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/engine/fair_queue.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

using ::testing::HasSubstr;

constexpr char kAlice[] = "Bearer alice-0123456789abcdef";
constexpr char kAliceToo[] = "Bearer alice-again-0123456789";
constexpr char kBob[] = "Bearer bob-0123456789abcdef";

class GateTest : public ::testing::Test {
 protected:
  GateTest() {
    std::ofstream(path_) << "alice " << kAlice + 7 << "\nalice " << kAliceToo + 7 << "\nbob "
                         << kBob + 7 << "\n";
    auto opened = Callers::Open(path_);
    EXPECT_TRUE(opened.ok()) << opened.status();
    callers_ = *std::move(opened);
    gate_ = std::make_unique<Gate>(Gate::Options{callers_.get(), true});
  }

  absl::StatusOr<Principal> Of(absl::string_view authorization, absl::string_view peer,
                               absl::string_view certificate = "") {
    return gate_->Identify({peer, certificate, authorization, 1});
  }

  const testing::TempFolder folder_;
  const std::string path_ = folder_.Path("tokens");
  std::unique_ptr<Callers> callers_;
  std::unique_ptr<Gate> gate_;
};

TEST_F(GateTest, ANameIsOnePrincipalByWhicheverConnectionOrToken) {
  const Principal alice = *Of(kAlice, "ipv4:10.0.0.1:1000");
  EXPECT_EQ(alice.name, "alice");
  EXPECT_NE(alice.id, 0u);
  EXPECT_EQ(Of(kAlice, "ipv4:10.0.0.2:2000")->id, alice.id);
  EXPECT_EQ(Of(kAliceToo, "ipv4:10.0.0.1:1000")->id, alice.id);
  EXPECT_NE(Of(kBob, "ipv4:10.0.0.1:1000")->id, alice.id);
}

TEST_F(GateTest, ACertificateNamesBeforeTheTokenWhichMustCountAllTheSame) {
  const Principal carol = *Of(kAlice, "ipv4:10.0.0.1:1000", "CN=carol,O=Example");
  EXPECT_EQ(carol.name, "CN=carol,O=Example");
  EXPECT_EQ(Of(kBob, "ipv4:10.0.0.2:1", "CN=carol,O=Example")->id, carol.id);
  EXPECT_EQ(Of("Bearer wrong-0123456789abcdef", "ipv4:10.0.0.2:1", "CN=carol").status().code(),
            absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(Of(kBob, "peer", std::string(1025, 'x')).status().message(),
              HasSubstr("has 1025 bytes; the limit is 1024"));
  EXPECT_EQ(gate_->refusals(AuthRefusal::kCertificate), 1);
}

TEST_F(GateTest, WhereNobodyHasANameEachConnectionStandsForItself) {
  Gate open({});
  const Principal first = *open.Identify({"ipv4:10.0.0.1:1000", "", kAlice, 1});
  EXPECT_EQ(first.name, "");
  EXPECT_NE(first.id, open.Identify({"ipv4:10.0.0.1:1001", "", kAlice, 1})->id);
  EXPECT_EQ(first.id, open.Identify({"ipv4:10.0.0.1:1000", "", "", 0})->id);
  // A connection cannot pass for the principal that has its peer's name.
  EXPECT_NE(ConnectionPrincipal("alice").id, NamedPrincipal("alice").id);
}

TEST_F(GateTest, CountsWhomItKeepsOutByReason) {
  EXPECT_FALSE(gate_->Identify({"peer", "", "", 0}).ok());
  EXPECT_FALSE(gate_->Identify({"peer", "", kAlice, 2}).ok());
  EXPECT_FALSE(Of("Bearer wrong-0123456789abcdef", "peer").ok());
  EXPECT_TRUE(Of(kAlice, "peer").ok());
  EXPECT_EQ(gate_->refusals(AuthRefusal::kNoToken), 1);
  EXPECT_EQ(gate_->refusals(AuthRefusal::kWrongToken), 2);
}

// Eight connections with a job waiting each, beside one with eight: each job that a device takes is
// followed by another of its connection.
TEST_F(GateTest, EightConnectionsOfOnePrincipalGetOneShare) {
  constexpr int64_t kJobNs = 5'000'000;
  constexpr int kJobs = 1000;
  FairQueue queue;
  uint64_t last_id = 0;
  const auto push = [&](uint64_t principal) {
    auto job = std::make_unique<Job>();
    job->key = {principal, kNoDeadline, ++last_id};
    job->predicted_ns = kJobNs;
    queue.Push(std::move(job));
  };
  for (int i = 0; i < 8; ++i) push(Of(kAlice, absl::StrCat("ipv4:10.0.0.1:", 1000 + i))->id);
  for (int i = 0; i < 8; ++i) push(Of(kBob, "ipv4:10.0.0.1:2000")->id);
  std::map<uint64_t, int> jobs;
  for (int i = 0; i < kJobs; ++i) {
    const auto job = queue.Pop([](Job&) { return true; });
    ++jobs[job->key.principal];
    push(job->key.principal);
  }
  ASSERT_EQ(jobs.size(), 2u);
  for (const auto& [principal, count] : jobs) EXPECT_NEAR(count, kJobs / 2, 1);
}

class PolicyGateTest : public ::testing::Test {
 protected:
  PolicyGateTest() {
    std::ofstream(path_) << R"({"principals": {
        "alice": {"methods": ["Execute"], "kernels": ["gelu"], "implementations": ["cuda", "loop"],
                  "devices": ["cuda:1"], "share": 4, "requests_in_flight_max": 2,
                  "bytes_in_flight_max": 100},
        "bob": {}, "dora": {"methods": ["Execute", "Push"], "pushes_in_flight_max": 1}}})";
    auto opened = Policies::Open(path_, {"Describe", "Execute", "Push"});
    EXPECT_TRUE(opened.ok()) << opened.status();
    policies_ = *std::move(opened);
    gate_ = std::make_unique<Gate>(Gate::Options{.policies = policies_.get()});
  }

  const testing::TempFolder folder_;
  const std::string path_ = folder_.Path("policies");
  const Principal alice_ = NamedPrincipal("alice");
  std::unique_ptr<Policies> policies_;
  std::unique_ptr<Gate> gate_;
};

using Calls = std::map<std::string, int64_t>;

TEST_F(PolicyGateTest, CountsCallsByThePrincipalsThatThePolicyNames) {
  EXPECT_EQ(gate_->calls_by_label(), (Calls{{"", 0}, {"alice", 0}, {"bob", 0}, {"dora", 0}}));
  const Principal bob = NamedPrincipal("bob");
  {
    const auto first = gate_->Admit(alice_, "Execute"), second = gate_->Admit(alice_, "Execute");
    EXPECT_FALSE(gate_->Admit(alice_, "Execute").ok());  // over her own limit: she is noisy
  }
  EXPECT_TRUE(gate_->Admit(bob, "Execute").ok());
  EXPECT_FALSE(gate_->Admit(NamedPrincipal("mallory"), "Execute").ok());  // nobody's label
  EXPECT_EQ(gate_->calls_by_label(), (Calls{{"", 0}, {"alice", 3}, {"bob", 1}, {"dora", 0}}));
  std::ofstream(path_) << R"({"default": {}, "principals": {"bob": {}, "carol": {}}})";
  ASSERT_TRUE(policies_->ReadAgain().ok());
  EXPECT_TRUE(gate_->Admit(alice_, "Execute").ok());  // by the default
  EXPECT_TRUE(gate_->Admit(bob, "Execute").ok());
  EXPECT_EQ(gate_->calls_by_label(), (Calls{{"", 1}, {"alice", 3}, {"bob", 2}, {"carol", 0}}));
}

TEST_F(PolicyGateTest, PushesHaveALimitOfTheirOwn) {
  const Principal dora = NamedPrincipal("dora");
  for (int i = 0; i < 2; ++i) {
    const auto push = gate_->Admit(dora, "Push");
    ASSERT_TRUE(push.ok()) << push.status();
    EXPECT_TRUE(push->Names("Push"));
    const absl::Status refused = gate_->Admit(dora, "Push").status();
    EXPECT_TRUE(absl::IsResourceExhausted(refused));
    EXPECT_THAT(refused.message(),
                HasSubstr("has 1 pushes in flight; that is its limit (pushes_in_flight_max)"));
    EXPECT_TRUE(gate_->Admit(dora, "Execute").ok());
  }
  const auto bob = gate_->Admit(NamedPrincipal("bob"), "Push");
  ASSERT_TRUE(bob.ok());
  EXPECT_FALSE(bob->Names("Push"));  // he may do everything, and nothing by name
}

std::string Named(int begin, int end) {
  std::string text = R"({"default": {}, "principals": {)";
  for (int i = begin; i < end; ++i)
    absl::StrAppend(&text, i == begin ? "" : ",", "\"p", i, "\": {}");
  return text + "}}";
}

TEST_F(PolicyGateTest, CountsNobodyByNameWhereThereAreMoreThanFifty) {
  std::ofstream(path_) << Named(0, 51);
  ASSERT_TRUE(policies_->ReadAgain().ok());
  EXPECT_TRUE(gate_->Admit(NamedPrincipal("p7"), "Execute").ok());
  EXPECT_EQ(gate_->calls_by_label(), Calls());
}

// Whatever files come one after another.
TEST_F(PolicyGateTest, NamesNoMoreThanFiftyInAll) {
  for (const int begin : {0, 50}) {
    std::ofstream(path_) << Named(begin, begin + 50);
    ASSERT_TRUE(policies_->ReadAgain().ok());
    for (int i = begin; i < begin + 50; ++i)
      EXPECT_TRUE(gate_->Admit(NamedPrincipal(absl::StrCat("p", i)), "Execute").ok());
  }
  const Calls calls = gate_->calls_by_label();
  EXPECT_EQ(calls.size(), 51u);
  EXPECT_EQ(calls.at("p49"), 1);
  EXPECT_EQ(calls.at(""), 50);
}

TEST_F(PolicyGateTest, SaysWhatIsNotAllowedAndWhatIs) {
  const absl::Status method = gate_->Admit(alice_, "Describe").status();
  EXPECT_EQ(method.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(method.message(), "alice may not call Describe; the server's policy allows: Execute");
  const Admission admission = *gate_->Admit(alice_, "Execute");
  EXPECT_EQ(admission.share(), 4);
  EXPECT_TRUE(admission.CheckKernel("gelu").ok());
  EXPECT_EQ(admission.CheckKernel("softmax").message(),
            "alice may not run softmax; the server's policy allows: gelu");
  EXPECT_TRUE(admission.CheckImplementation("loop", "cpu").ok());
  EXPECT_TRUE(admission.CheckImplementation("two_pass", "cuda").ok());
  EXPECT_FALSE(admission.CheckImplementation("two_pass", "cpu").ok());
  EXPECT_TRUE(admission.CheckDevice("cuda:1").ok());
  EXPECT_FALSE(admission.CheckDevice("cuda:0").ok());
  for (const AuthRefusal reason : {AuthRefusal::kMethod, AuthRefusal::kKernel,
                                   AuthRefusal::kImplementation, AuthRefusal::kDevice})
    EXPECT_EQ(gate_->refusals(reason), 1) << AuthRefusalName(reason);
}

TEST_F(PolicyGateTest, WhoHasNoEntryMayDoNothingWithoutADefault) {
  EXPECT_TRUE(gate_->Admit(NamedPrincipal("bob"), "Describe")->CheckKernel("softmax").ok());
  for (const Principal& other : {NamedPrincipal("carol"), ConnectionPrincipal("ipv4:1.2.3.4:5")})
    EXPECT_EQ(gate_->Admit(other, "Execute").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(gate_->refusals(AuthRefusal::kNoPolicy), 2);
}

TEST_F(PolicyGateTest, LimitsWhatIsInFlightAndTakesBackWhatEnded) {
  Admission first = *gate_->Admit(alice_, "Execute");
  std::optional<Admission> second = *gate_->Admit(alice_, "Execute");
  const absl::Status third = gate_->Admit(alice_, "Execute").status();
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(third.message(), HasSubstr("alice has 2 requests in flight; that is its limit"));
  EXPECT_TRUE(gate_->Admit(NamedPrincipal("bob"), "Execute").ok());
  EXPECT_TRUE(first.Hold(60).ok());
  EXPECT_TRUE(second->Hold(40).ok());
  EXPECT_THAT(first.Hold(1).message(), HasSubstr("has 100 bytes in flight and this request 1 more; "
                                                 "its limit is 100 (bytes_in_flight_max)"));
  // Nothing overflows, and bytes that never fit get another error than bytes that may fit later.
  EXPECT_FALSE(first.Hold(INT64_MAX).ok());
  EXPECT_TRUE(first.MayEverHold(100));
  EXPECT_FALSE(first.MayEverHold(101));
  second.reset();
  EXPECT_TRUE(first.Hold(40).ok());
  Admission moved = std::move(first);
  EXPECT_FALSE(moved.Hold(1).ok());
  moved = Admission();
  const Admission again = *gate_->Admit(alice_, "Execute");
  EXPECT_TRUE(gate_->Admit(alice_, "Execute")->Hold(100).ok());
  EXPECT_EQ(gate_->refusals(AuthRefusal::kRequestsInFlight), 1);
  EXPECT_EQ(gate_->refusals(AuthRefusal::kBytesInFlight), 3);
}

}  // namespace
}  // namespace warpcall
