// Clients that send slowly, and clients that vanish in the middle of a large message: nothing of
// theirs is kept and everyone else is served as before.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/steady_clients.h"
#include "tests/programs.h"

namespace warpcall::testing {
namespace {

constexpr int64_t kMessageBytes = 64 * kMib;
// Freed memory that malloc, and AddressSanitizer's quarantine of 256 MiB, may keep.
int64_t SlackBytes() { return ProgramsAreSanitized() ? 1024 * kMib : 2 * kMessageBytes; }

// Connections that each send one call a few bytes at a time. The destructor sends the rest, and
// every call gets its answer.
class SlowSenders {
 public:
  explicit SlowSenders(const std::string& address)
      : bytes_(RawHttp2::CallFrames(1, Request("gelu", {FloatTensor(16)}).SerializeAsString())) {
    for (int i = 0; i < kConnections; ++i) clients_.push_back(std::make_unique<RawHttp2>(address));
    thread_ = std::thread([this] { Trickle(); });
  }
  ~SlowSenders() {
    over_ = true;
    thread_.join();
    for (const auto& client : clients_) {
      client->Send(bytes_.substr(sent_));
      EXPECT_TRUE(client->AwaitEnd(1));
    }
  }

  static constexpr int kConnections = 50;

 private:
  static constexpr size_t kBytesAtATime = 7;
  static constexpr absl::Duration kPause = absl::Milliseconds(40);

  void Trickle() {
    GiveWay();
    for (; !over_ && sent_ + kBytesAtATime < bytes_.size(); sent_ += kBytesAtATime) {
      for (const auto& client : clients_) client->Send(bytes_.substr(sent_, kBytesAtATime));
      absl::SleepFor(kPause);
    }
  }

  const std::string bytes_;
  std::vector<std::unique_ptr<RawHttp2>> clients_;
  size_t sent_ = 0;  // by each
  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST(FaultsSenders, ClientsThatSendAFewBytesAtATime) {
  ServerProcess server;
  SteadyClients others(server.address());
  int slow = 0;
  ExpectUndisturbed(&others, [&] {
    slow += SlowSenders::kConnections;
    return std::make_shared<SlowSenders>(server.address());
  });
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"code=\"OK\"", "kernel=\"gelu\""}), slow);
  EXPECT_EQ(server.Sum("warpcall_requests_total"), others.sent() + slow);
  EXPECT_EQ(server.Stop(), 0);
}

// Announces a large message, sends `bytes` of it, with a pause after every 64 KiB, and vanishes: in
// order, or with a reset.
void Vanish(const std::string& address, int64_t bytes, absl::Duration pause, bool orderly) {
  constexpr int64_t kStepBytes = 64 << 10;
  RawHttp2 client(address);
  const uint32_t stream = client.Call();
  client.SendMessagePart(stream, kMessageBytes, "", false);
  for (; bytes > 0; bytes -= kStepBytes) {
    EXPECT_TRUE(client.SendZeros(stream, std::min(bytes, kStepBytes)));
    absl::SleepFor(pause);
  }
  EXPECT_TRUE(client.connected());
  orderly ? client.CloseOrderly() : client.Abort();
}

// A request that never arrived whole counts once and as cancelled by its client; the server may
// never have seen one whose connection was reset.
void ExpectCancelled(const ServerProcess& server, int orderly, int reset) {
  const std::string requests = "warpcall_requests_total";
  const std::vector<std::string> cancelled = {"code=\"CANCELLED\""};
  EXPECT_TRUE(Eventually([&] { return server.Sum(requests, cancelled) >= orderly; }))
      << server.Sum(requests, cancelled) << " of " << orderly << " are counted";
  EXPECT_TRUE(
      Eventually([&] { return server.Sum("warpcall_staging_bytes", {"state=\"used\""}) == 0; }));
  const auto metrics = server.Metrics();  // one scrape: resets may come late
  EXPECT_LE(SumOf(metrics, requests, cancelled), orderly + reset);
  EXPECT_EQ(SumOf(metrics, requests),
            SumOf(metrics, requests, {"code=\"OK\""}) + SumOf(metrics, requests, cancelled));
}

// Vanishes again and again, at one place after the other.
class VanishingSenders {
 public:
  VanishingSenders(const std::string& address, int* orderly, int* reset)
      : thread_([=, this] {
          GiveWay();
          constexpr int64_t kPlaces[] = {0, 1, 1000, 65'000, 70'000, kMib, 3 * kMib};
          for (size_t i = 0; !over_; ++i) {
            const bool is_orderly = i % 2 == 0;
            Vanish(address, kPlaces[i % std::size(kPlaces)], kPause, is_orderly);
            ++*(is_orderly ? orderly : reset);
            absl::SleepFor(kPause);
          }
        }) {}
  ~VanishingSenders() {
    over_ = true;
    thread_.join();
  }

 private:
  static constexpr absl::Duration kPause = absl::Milliseconds(4);

  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST(FaultsSenders, ClientsThatVanishInTheMiddleDisturbNobody) {
  ServerProcess server({"--log_level=error"});
  SteadyClients others(server.address());
  int orderly = 0;
  int reset = 0;
  ExpectUndisturbed(&others, [&] {
    return std::make_shared<VanishingSenders>(server.address(), &orderly, &reset);
  });
  ExpectCancelled(server, orderly, reset);
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"code=\"OK\""}), others.sent());
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_EQ(server.log(), "") << "a client's doing is no error of the server";
}

TEST(FaultsSenders, ClientsThatVanishInTheMiddleLeaveNoMemory) {
  ServerProcess server;
  const double descriptors = server.Sum("process_open_fds");
  const int64_t before_bytes = server.ResidentBytes();
  constexpr int kRounds = 8;
  constexpr int64_t kPlaces[] = {1, kMib, 16 * kMib, kMessageBytes - 1};
  for (int round = 0; round < kRounds; ++round) {
    for (int64_t bytes : kPlaces) {
      Vanish(server.address(), bytes, absl::ZeroDuration(), true);
      Vanish(server.address(), bytes, absl::ZeroDuration(), false);
    }
  }
  constexpr int kVanished = kRounds * std::size(kPlaces);
  ExpectCancelled(server, kVanished, kVanished);
  // gRPC opens a few descriptors of its own when it first needs them; 64 connections came and went.
  EXPECT_TRUE(Eventually([&] { return server.Sum("process_open_fds") <= descriptors + 8; }));
  EXPECT_TRUE(Eventually([&] { return server.ResidentBytes() - before_bytes < SlackBytes(); }))
      << server.ResidentBytes() << " bytes, " << before_bytes << " before";
  EXPECT_TRUE(Execute(Connect(server.address()), Request("gelu", {FloatTensor(4)})).status.ok());
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
