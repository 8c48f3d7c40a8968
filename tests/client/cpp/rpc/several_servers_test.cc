// Addresses that stand for several servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor.h"
#include "tests/client/fake_server.h"

namespace warpcall::client {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;
using warpcall::testing::FakeServer;

constexpr int kServers = 3;
// Of each server in a round of calls.
constexpr int kTurns = 10;

class SeveralServersTest : public ::testing::Test {
 protected:
  SeveralServersTest() {
    std::vector<std::string> addresses;
    for (int i = 0; i < kServers; ++i) {
      servers_.push_back(std::make_unique<FakeServer>(testing::EchoInputs));
      addresses.push_back(servers_.back()->address());
    }
    client_ = std::make_unique<Client>(absl::StrCat("ipv4:", absl::StrJoin(addresses, ",")));
  }

  // How many calls each server had of a round in which all succeeded.
  std::vector<int> Round() {
    std::vector<int> calls;
    for (const auto& server : servers_) calls.push_back(-server->executes());
    for (int i = 0; i < kServers * kTurns; ++i) {
      const auto result = client_->Identity(Tensor::FromFloats({1}, {1}));
      EXPECT_TRUE(result.ok()) << result.status();
    }
    for (int i = 0; i < kServers; ++i) calls[i] += servers_[i]->executes();
    return calls;
  }

  // Rounds until one goes as expected: connections and reports of health take their time.
  std::vector<int> RoundLike(const ::testing::Matcher<std::vector<int>>& expected) {
    const absl::Time give_up = absl::Now() + absl::Seconds(90);
    std::vector<int> calls;
    do {
      calls = Round();
    } while (!expected.Matches(calls) && absl::Now() < give_up);
    return calls;
  }

  std::vector<std::unique_ptr<FakeServer>> servers_;
  std::unique_ptr<Client> client_;
};

TEST_F(SeveralServersTest, EachHasItsTurn) {
  EXPECT_THAT(RoundLike(Each(kTurns)), Each(kTurns));
  EXPECT_THAT(Round(), Each(kTurns));
}

TEST_F(SeveralServersTest, OneThatIsAboutToStopHasNoneAndComesBack) {
  ASSERT_THAT(RoundLike(Each(kTurns)), Each(kTurns));
  servers_[1]->SetServing(false);
  const auto without = ElementsAre(kTurns * 3 / 2, 0, kTurns * 3 / 2);
  EXPECT_THAT(RoundLike(without), without);
  EXPECT_THAT(Round(), without);
  servers_[1]->SetServing(true);
  EXPECT_THAT(RoundLike(Each(kTurns)), Each(kTurns));
}

TEST_F(SeveralServersTest, OneThatIsLostIsNotMissed) {
  ASSERT_THAT(RoundLike(Each(kTurns)), Each(kTurns));
  servers_[0]->Stop();
  EXPECT_THAT(Round(), ElementsAre(0, AllOf(Ge(kTurns), Le(2 * kTurns)), Ge(kTurns)));
}

}  // namespace
}  // namespace warpcall::client
