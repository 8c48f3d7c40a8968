#include "server/transport/peers.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "server/system/listen.h"

namespace warpcall {
namespace {

constexpr uid_t kOther = 65533;

// A client's socket and the server's end of it.
struct Pair {
  // `user`: of the client's socket, where this process may choose.
  explicit Pair(const std::string& address, const std::string& from = "", uid_t user = geteuid())
      : listening(*ListeningSockets::Open(address)) {
    const uid_t own = geteuid();
    if (address.starts_with("unix:")) chmod(address.c_str() + 5, 0666);
    EXPECT_EQ(seteuid(user), 0);
    client = Connect(from);
    EXPECT_EQ(seteuid(own), 0);
    server = accept(listening.sockets().front().get(), nullptr, nullptr);
  }
  ~Pair() {
    close(client);
    close(server);
  }

  int Connect(const std::string& from) const {
    sockaddr_storage to = {};
    socklen_t bytes = sizeof(to);
    getsockname(listening.sockets().front().get(), reinterpret_cast<sockaddr*>(&to), &bytes);
    if (!from.empty() && to.ss_family == AF_INET6) {
      sockaddr_in v4 = {};
      v4.sin_family = AF_INET;
      v4.sin_port = reinterpret_cast<const sockaddr_in6&>(to).sin6_port;
      v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      reinterpret_cast<sockaddr_in&>(to) = v4;
    }
    const int fd = socket(to.ss_family, SOCK_STREAM, 0);
    if (!from.empty()) {
      sockaddr_in own = {};
      own.sin_family = AF_INET;
      inet_pton(AF_INET, from.c_str(), &own.sin_addr);
      EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    }
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), bytes), 0);
    return fd;
  }

  int client_port() const {
    sockaddr_storage own = {};
    socklen_t bytes = sizeof(own);
    getsockname(client, reinterpret_cast<sockaddr*>(&own), &bytes);
    return ntohs(reinterpret_cast<const sockaddr_in&>(own).sin_port);  // equals sockaddr_in6's
  }

  ListeningSockets listening;
  int client = -1;
  int server = -1;
};

std::string UserHere() { return absl::StrCat("uid ", geteuid()); }

class PeersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (SourceOf(Pair("127.0.0.1:0").server) == "loopback")
      GTEST_SKIP() << "the kernel tells no user of a TCP socket (CONFIG_INET_DIAG)";
  }
  std::string UnixAddress() const {
    return absl::StrCat("unix:", ::testing::TempDir(), "/peers-", getpid(), ".sock");
  }
};

TEST_F(PeersTest, OfThisMachineAreUsers) {
  EXPECT_EQ(SourceOf(Pair("127.0.0.1:0").server), UserHere());
  EXPECT_EQ(SourceOf(Pair("127.0.0.1:0", "127.0.0.2").server), UserHere());
  EXPECT_EQ(SourceOf(Pair("0.0.0.0:0").server), UserHere());
  EXPECT_EQ(SourceOf(Pair("0.0.0.0:0", "127.0.0.1").server), UserHere());
  EXPECT_EQ(SourceOf(Pair(UnixAddress()).server), UserHere());
  if (ListeningSockets::Open("[::1]:0").ok()) {
    EXPECT_EQ(SourceOf(Pair("[::1]:0").server), UserHere());
  }
  EXPECT_EQ(SourceOf(-1), "");
}

TEST_F(PeersTest, OfAnotherUserAreTold) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may be another user";
  for (const std::string& address : {std::string("127.0.0.1:0"), UnixAddress()}) {
    Pair pair(address, "", kOther);
    EXPECT_EQ(SourceOf(pair.server), absl::StrCat("uid ", kOther)) << address;
  }
}

// The kernel would report such a socket as root's.
TEST_F(PeersTest, OfAClosedSocketAreNobodys) {
  Pair pair("127.0.0.1:0");
  close(pair.client);
  pair.client = -1;
  EXPECT_EQ(SourceOf(pair.server), "loopback");
}

TEST_F(PeersTest, HaveTheNamesThatGrpcGivesThem) {
  const Pair v4("127.0.0.1:0", "127.0.0.2");
  const std::string name = PeerNameOf(v4.server);
  EXPECT_EQ(name, absl::StrCat("ipv4:127.0.0.2:", v4.client_port()));
  const Pair mapped("0.0.0.0:0", "127.0.0.3");
  EXPECT_EQ(PeerNameOf(mapped.server), absl::StrCat("ipv4:127.0.0.3:", mapped.client_port()));
  if (ListeningSockets::Open("[::1]:0").ok()) {
    const Pair v6("[::1]:0");
    EXPECT_EQ(PeerNameOf(v6.server), absl::StrCat("ipv6:%5B::1%5D:", v6.client_port()));
  }
  const Pair at_path(UnixAddress());
  EXPECT_EQ(PeerNameOf(at_path.server), absl::StrCat("fd:", at_path.server));
  EXPECT_TRUE(IsUnixSocket(at_path.server));
  EXPECT_FALSE(IsUnixSocket(v4.server));
  EXPECT_EQ(PeerNameOf(-1), "");
}

}  // namespace
}  // namespace warpcall
