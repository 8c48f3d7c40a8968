// Connections that do nothing: each costs little memory, and no time of anyone else's.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/eventually.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/steady_clients.h"
#include "tests/programs.h"

namespace warpcall::testing {
namespace {

constexpr int kManyConnections = 1000;
int64_t ConnectionBytesMax() { return ProgramsAreSanitized() ? 1 << 20 : 64 << 10; }

// The soft limit of this process, and of those that it starts, on descriptors; restored at the end.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit limit = {std::min(count, before_.rlim_max), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

  rlim_t hard() const { return before_.rlim_max; }

 private:
  rlimit before_ = {};
};

// Reads the server's next `count` HTTP/2 frames: nine bytes each, three of which give the number of
// bytes that follow.
void ReadFrames(int fd, int count) {
  for (; count > 0; --count) {
    uint8_t head[9] = {};
    EXPECT_EQ(recv(fd, head, sizeof(head), MSG_WAITALL), static_cast<ssize_t>(sizeof(head)));
    std::string payload(size_t{head[0]} << 16 | size_t{head[1]} << 8 | head[2], '\0');
    EXPECT_EQ(recv(fd, payload.data(), payload.size(), MSG_WAITALL),
              static_cast<ssize_t>(payload.size()));
  }
}

class IdleConnections {
 public:
  // Each sends `greeting`, waits for as many frames as the server says to it, and falls silent.
  IdleConnections(const std::string& address, const std::string& greeting, int frames) {
    for (int i = 0; i < kManyConnections; ++i) {
      const int fd = ConnectTcp(address);
      EXPECT_GE(fd, 0) << "connection " << i;
      EXPECT_EQ(write(fd, greeting.data(), greeting.size()), static_cast<ssize_t>(greeting.size()));
      fds_.push_back(fd);
    }
    for (int fd : fds_) ReadFrames(fd, frames);
  }
  ~IdleConnections() {
    for (int fd : fds_) close(fd);
  }

 private:
  std::vector<int> fds_;
};

void ExpectIdleConnectionsAreHarmless(const std::string& greeting, int frames) {
  // Fewer than there will be connections: the server has to raise its limit itself.
  auto usual = std::make_unique<DescriptorLimit>(kManyConnections / 2);
  if (usual->hard() < 2 * kManyConnections)
    GTEST_SKIP() << "the hard limit on descriptors is " << usual->hard() << ", the test needs "
                 << 2 * kManyConnections;
  ServerProcess server;
  usual.reset();
  const DescriptorLimit enough(2 * kManyConnections);
  SteadyClients others(server.address());
  const double descriptors = server.Sum("process_open_fds");
  const int64_t before_bytes = server.ResidentBytes();
  const auto begin = [&] {
    return std::make_shared<IdleConnections>(server.address(), greeting, frames);
  };
  ExpectUndisturbed(&others, begin, [&] { return server.Sum("process_open_fds") <= descriptors; });
  EXPECT_LT(server.PeakResidentBytes() - before_bytes, kManyConnections * ConnectionBytesMax());
  EXPECT_EQ(server.Sum("warpcall_requests_total"), others.sent());
  EXPECT_EQ(server.Stop(), 0);
}

// The server begins with its settings.
TEST(FaultsConnections, AThousandThatSayNothing) { ExpectIdleConnectionsAreHarmless("", 1); }

// Acknowledges the client's settings.
TEST(FaultsConnections, AThousandThatOnlyGreet) {
  ExpectIdleConnectionsAreHarmless(RawHttp2::Preface(), 2);
}

}  // namespace
}  // namespace warpcall::testing
