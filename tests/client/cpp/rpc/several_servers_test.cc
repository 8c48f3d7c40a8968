// Addresses that stand for several servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/client/fake_server.h"
#include "warpcall/client.h"
#include "warpcall/tensor.h"

namespace warpcall::client {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;
using warpcall::testing::FakeServer;

constexpr int kServers = 3;
// Turns of each server in a round of calls.
constexpr int kTurns = 10;

class SeveralServersTest : public ::testing::Test {
 protected:
  SeveralServersTest() {
    std::vector<std::string> addresses;
    for (int i = 0; i < kServers; ++i) {
      servers_.push_back(std::make_unique<FakeServer>(testing::EchoInputs));
      servers_.back()->AnswerExecuteStream(testing::EchoStream);
      addresses.push_back(servers_.back()->address());
    }
    address_ = absl::StrCat("ipv4:", absl::StrJoin(addresses, ","));
    client_ = std::make_unique<Client>(
        address_, ClientOptions{.retry = {.attempts_max = 1}});  // a call that is lost shows
  }

  // Number of calls that each server had in a round; all calls of the round succeeded.
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
    } while (!expected.Matches(calls) && !HasFailure() && absl::Now() < give_up);
    return calls;
  }

  // Returns when the client knows that none serves: then each has its turn again.
  void StopServing() {
    ASSERT_THAT(RoundLike(Each(kTurns)), Each(kTurns));
    for (const int i : {1, 2}) servers_[i]->SetServing(false);
    const auto one = ElementsAre(kTurns * kServers, 0, 0);
    ASSERT_THAT(RoundLike(one), one);
    servers_[0]->SetServing(false);
    ASSERT_THAT(RoundLike(Each(kTurns)), Each(kTurns));
  }

  // Number of connections to each server.
  std::vector<size_t> Connections() const {
    std::vector<size_t> connections;
    for (const auto& server : servers_) connections.push_back(server->peers().size());
    return connections;
  }

  std::vector<std::unique_ptr<FakeServer>> servers_;
  std::string address_;
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

TEST_F(SeveralServersTest, NoCallIsLostWhereNoneServes) {
  StopServing();
  servers_[2]->SetServing(true);
  const auto one = ElementsAre(0, 0, kTurns * kServers);
  EXPECT_THAT(RoundLike(one), one);
}

TEST_F(SeveralServersTest, NoStreamIsLostWhereNoneServes) {
  StopServing();
  // Each call is the first of a client, which has yet to hear that none serves.
  for (int i = 0; i < kTurns; ++i) {
    Client client(address_, {.retry = {.attempts_max = 1}});
    const auto result = client.ExecuteStream(
        Call{.kernel = "identity", .inputs = {Tensor::FromFloats({2}, {1, 2})}});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->outputs[0].ToFloats(), ElementsAre(1, 2));
  }
}

TEST_F(SeveralServersTest, AClientHasOneConnectionToEachServer) {
  StopServing();
  EXPECT_THAT(Connections(), Each(1));
  Client other(address_, {.connections = 2});
  for (int i = 0; i < 2 * kServers * kTurns; ++i)
    EXPECT_TRUE(other.Identity(Tensor::FromFloats({1}, {1})).ok());
  EXPECT_THAT(Connections(), Each(3));
}

TEST_F(SeveralServersTest, OneThatIsLostIsNotMissed) {
  ASSERT_THAT(RoundLike(Each(kTurns)), Each(kTurns));
  servers_[0]->Stop();
  EXPECT_THAT(Round(), ElementsAre(0, AllOf(Ge(kTurns), Le(2 * kTurns)), Ge(kTurns)));
}

}  // namespace
}  // namespace warpcall::client
