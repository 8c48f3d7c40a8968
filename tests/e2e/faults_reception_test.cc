// Messages that are far larger than anyone has room for, from many connections at once. The server
// keeps within its budget, and serves others meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/fault_process.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/server_process.h"
#include "tests/programs.h"
#include "warpcall/client.h"

namespace warpcall::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int kGiantConnections = 64;
constexpr int64_t kGiantMib = 128;
constexpr int64_t kStagingMib = 64;
constexpr int64_t kQueueMib = 64;
constexpr int64_t kReceptionMib = 192;
// gRPC ends calls once the budget is exceeded, so it stays exceeded for a while; and malloc's
// arenas keep some freed memory.
int64_t ReceptionSlackMib() { return ProgramsAreSanitized() ? 1024 : 128; }
// Shortest time in which everyone else's messages pour in.
constexpr absl::Duration kPeriod = absl::Seconds(3);
constexpr int kServedMin = 50;

std::vector<std::string> ReceptionFlags() {
  return {absl::StrCat("--staging_mib=", kStagingMib), absl::StrCat("--queue_mib=", kQueueMib),
          absl::StrCat("--reception_mib=", kReceptionMib), "--max_message_mib=32",
          "--log_level=error"};
}

class FaultsReception : public ::testing::Test {
 protected:
  // Shrinks AddressSanitizer's quarantine. Its default of 256 MiB counts as the server's memory,
  // would exceed the server's limit and end calls.
  FaultsReception() {
    if (ProgramsAreSanitized()) setenv("ASAN_OPTIONS", "quarantine_size_mb=16", 1);
  }
  ~FaultsReception() override { unsetenv("ASAN_OPTIONS"); }
};

TEST_F(FaultsReception, GiantMessagesAndChunksOfManyStayWithinTheBudgetAndOthersAreServed) {
  ServerProcess server(ReceptionFlags());
  // Repeats calls that met a connection which gRPC had closed because it was idle. One of four
  // repeated calls meets such a connection again, however long the pause: with the default of five
  // attempts, one call of some thousand fails.
  client::Client other(server.address(), {.retry = {.attempts_max = 12}});
  const std::vector<float> values(1024, 1.5f);
  const auto ask = [&] { return other.Identity(client::Tensor::FromFloats({1024}, values)); };
  ASSERT_TRUE(ask().ok());
  int served = 0;
  int repeated = 0;
  const int64_t before = server.PeakResidentBytes();
  std::vector<int> calls(1);
  {
    FaultProcess giants(
        {"giants", server.address(), absl::StrCat(kGiantConnections), absl::StrCat(kGiantMib)},
        &calls);
    // Waits until incoming bytes would be far over the budget, too; a slow machine takes longer.
    const auto pressed = [&] {
      return server.PeakResidentBytes() - before > (kQueueMib + kReceptionMib) * kMib / 2;
    };
    const absl::Time end = absl::Now() + kPeriod;
    for (; served < kServedMin || absl::Now() < end || !pressed(); ++served) {
      const auto result = ask();
      ASSERT_TRUE(result.ok()) << result.status() << " after " << served;
      EXPECT_THAT(result->outputs[0].ToFloats(), ElementsAreArray(values));
      repeated += result->attempts - 1;
    }
  }
  const int64_t grown = server.PeakResidentBytes() - before;
  std::printf(
      "%d calls of %d MiB from %d connections: at most %.0f MiB more resident; "
      "of others %d answered, %d repeated\n",
      calls[0], static_cast<int>(kGiantMib), kGiantConnections,
      static_cast<double>(grown) / static_cast<double>(kMib), served, repeated);
  EXPECT_LE(repeated, served / 2);
  EXPECT_GT(calls[0], 0);
  EXPECT_LE(grown, (kStagingMib + kQueueMib + kReceptionMib + ReceptionSlackMib()) * kMib);
  // The budget gets its bytes back: the server takes the next client's large message.
  EXPECT_TRUE(Eventually([&] {
    return Execute(Connect(server.address()), Request("gelu", {FloatTensor(7 << 20)})).status.ok();
  }));
  EXPECT_TRUE(
      Eventually([&] { return server.Sum("warpcall_staging_bytes", {"state=\"used\""}) == 0; }));
  EXPECT_EQ(server.Stop(), 0);
}

// Frames of a few bytes, which no client of gRPC sends: counting the pieces would take many times
// the memory of their content.
TEST_F(FaultsReception, AMessageInSplintersIsRefusedWithItsLimit) {
  ServerProcess server(ReceptionFlags());
  const std::string message = Request("identity", {FloatTensor(1 << 18)}).SerializeAsString();
  RawHttp2 client(server.address());
  const uint32_t stream = client.Call();
  client.SendMessagePart(stream, static_cast<uint32_t>(message.size()), "", false);
  constexpr size_t kSplinterBytes = 32;  // shorter ones gRPC joins
  for (size_t at = 0; at < message.size(); at += kSplinterBytes)
    ASSERT_TRUE(client.SendData(stream, message.substr(at, kSplinterBytes),
                                at + kSplinterBytes >= message.size()));
  EXPECT_TRUE(client.AwaitEnd(stream));
  EXPECT_THAT(client.headers(), HasSubstr("pieces; the limit is 8192"));
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"code=\"RESOURCE_EXHAUSTED\""}), 1);
  EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"message_bytes\""}), 1);
  EXPECT_EQ(server.Stop(), 0);
}

// A frame of one byte takes 42 bytes of memory, but gRPC's quota counts ten of them: the server
// watches its own memory, and ends calls until it is within its limit, in which the unused room of
// tensors that stay (1024 MiB) is not.
TEST_F(FaultsReception, AMessageInFramesOfOneByteIsEndedBeforeItTakesTooMuch) {
  ServerProcess server({"--staging_mib=16", "--queue_mib=32", "--reception_mib=96",
                        "--max_message_mib=16", "--self_test=off"});
  constexpr int64_t kSumMib = 16 + (32 + 96) + 2 * 16 + 2 * 16;  // from its log
  constexpr int64_t kOwnMib = 100;
  RawHttp2 client(server.address());
  const uint32_t stream = client.Call();
  client.SendMessagePart(stream, 16 << 20, "", false);
  constexpr int kFrames = 4096;
  std::string frames;
  for (int i = 0; i < kFrames; ++i)  // length 1, type 0 (DATA), no flags, the stream, the byte
    frames += std::string("\0\0\1\0\0\0\0\0", 8) + static_cast<char>(stream) + "x";
  bool is_open = true;
  for (int sent = 0; is_open && sent < 15 << 20; sent += kFrames)
    is_open = client.SendFrames(stream, frames, kFrames);
  EXPECT_FALSE(is_open) << "15 MiB in frames of one byte were taken";
  const int64_t peak_mib = server.PeakResidentBytes() / kMib;
  EXPECT_LE(peak_mib,
            (kSumMib + kOwnMib) * 3 / 2 + (ProgramsAreSanitized() ? ReceptionSlackMib() : 0));
  EXPECT_TRUE(server.Logs("memory is over its limit"));
  // Others are served afterwards, with messages as large as before.
  EXPECT_TRUE(Eventually([&] {
    return Execute(Connect(server.address()), Request("gelu", {FloatTensor(1 << 20)})).status.ok();
  }));
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
