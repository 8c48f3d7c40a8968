#include "server/system/listen.h"

#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/known_localhost.h"
#include "tests/server/foreign_addresses.h"
#include "tests/server/without_ipv6.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

// A socket of this process that listens, at the path or, without one, at a port of 127.0.0.1.
class Listener {
 public:
  explicit Listener(const std::string& path = "")
      : fd_(socket(path.empty() ? AF_INET : AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un unix_address = {};
    unix_address.sun_family = AF_UNIX;
    path.copy(unix_address.sun_path, sizeof(unix_address.sun_path) - 1);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto* const any = path.empty() ? reinterpret_cast<const sockaddr*>(&address)
                                         : reinterpret_cast<const sockaddr*>(&unix_address);
    const socklen_t bytes = path.empty() ? sizeof(address) : sizeof(unix_address);
    EXPECT_EQ(bind(fd_, any, bytes), 0) << strerror(errno);
    EXPECT_EQ(listen(fd_, 1), 0);
  }
  ~Listener() { close(fd_); }

  int port() const {
    sockaddr_in address = {};
    socklen_t bytes = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes);
    return ntohs(address.sin_port);
  }

 private:
  const int fd_;
};

void ExpectRefusal(const absl::Status& status, const std::string& text) {
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), text)) << status << ", wanted: " << text;
}

TEST(ParseHostPort, TakesNamesAndBracketsAndNamesTheRange) {
  EXPECT_EQ(ParseHostPort("localhost:80")->host, "localhost");
  EXPECT_EQ(ParseHostPort("[::1]:65535")->host, "::1");
  EXPECT_EQ(ParseHostPort("[::1]:65535")->port, 65535);
  for (const char* const wrong : {"localhost", ":80", "a:", "a:-1", "a:65536", "a:x", "a:+1",
                                  "a: 1", "a:000001", "a:", "unix:/x", "unix:5"})
    EXPECT_TRUE(absl::StrContains(ParseHostPort(wrong).status().message(), "0 to 65535")) << wrong;
}

TEST(CheckHostPort, TellsWhatIsWrongApart) {
  EXPECT_TRUE(CheckHostPort("127.0.0.1:0").ok());
  auto listener = std::make_unique<Listener>();
  const int port = listener->port();
  const std::string in_use =
      absl::StrCat("cannot listen on 127.0.0.1:", port, ": port ", port, " is in use by ");
  // No process has itself to blame for.
  ExpectRefusal(CheckHostPort(absl::StrCat("127.0.0.1:", port)),
                in_use + "this process: two addresses that it is to listen on are the same");
  // Another process keeps the socket that this one gives up.
  int end[2];
  ASSERT_EQ(pipe(end), 0);
  const pid_t other = fork();
  if (other == 0) {
    close(end[1]);
    char byte;
    _exit(read(end[0], &byte, 1) == 0 ? 0 : 1);
  }
  listener.reset();
  ExpectRefusal(CheckHostPort(absl::StrCat("127.0.0.1:", port)),
                absl::StrCat(in_use, "process ", other, " ("));
  close(end[1]);
  close(end[0]);
  EXPECT_EQ(waitpid(other, nullptr, 0), other);
  ExpectRefusal(CheckHostPort("no host:0"), "cannot listen on no host:0: the host no host: ");
}

TEST(CheckHostPort, ThisMachineHasNotAllAddresses) {
  if (testing::MayListenAtForeignAddresses())
    GTEST_SKIP() << "this system lets processes listen at them all";
  // RFC 5737 keeps this network for documents.
  ExpectRefusal(CheckHostPort("192.0.2.1:0"),
                "cannot listen on 192.0.2.1:0: this machine has no such address");
}

TEST(CheckHostPort, APortThatIsFreeOnOneAddressOnlyIsInUse) {
  if (!testing::KnowsLocalhost()) GTEST_SKIP() << "this system does not know localhost";
  const Listener listener;
  // localhost has addresses of both families, where the machine has both.
  const absl::Status status = CheckHostPort(absl::StrCat("localhost:", listener.port()));
  ExpectRefusal(status, absl::StrCat("port ", listener.port(), " is in use"));
}

TEST(CheckHostPort, WithoutIpv6AllAddressesAreThoseOfIpv4) {
  const int free = testing::RunWithoutIpv6([] {
    return CheckHostPort("[::]:0").ok() && CheckHostPort("[0::0]:0").ok() &&
           ForThisMachine({"::", 80}).host == "0.0.0.0";
  });
  if (free == testing::kNoFilter) GTEST_SKIP() << "this system filters no process's calls";
  EXPECT_EQ(free, 0);
  const Listener listener;
  EXPECT_EQ(testing::RunWithoutIpv6([&] {
              return absl::StrContains(
                  CheckHostPort(absl::StrCat("[::]:", listener.port())).message(), "is in use");
            }),
            0);
  EXPECT_EQ(testing::RunWithoutIpv6([] {
              return absl::StrContains(CheckHostPort("[::1]:0").message(),
                                       "no addresses of this kind");
            }),
            0);
  EXPECT_EQ(ForThisMachine({"localhost", 80}).host, "localhost");
}

// Connects to `listening`, and returns true if that worked.
bool Connects(const ListeningSockets& listening, const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* to = nullptr;
  const std::string& address = listening.address();
  if (getaddrinfo(host.c_str(), address.c_str() + address.rfind(':') + 1, &hints, &to) != 0)
    return false;
  const Descriptor client(socket(to->ai_family, SOCK_STREAM, 0));
  const bool connected = connect(client.get(), to->ai_addr, to->ai_addrlen) == 0;
  freeaddrinfo(to);
  return connected;
}

bool HasIpv6Loopback() { return ListeningSockets::Open("[::1]:0").ok(); }

TEST(ListeningSockets, AllAddressesAreThoseOfBothFamilies) {
  for (const char* const all : {"0.0.0.0:0", "[::]:0"}) {
    const absl::StatusOr<ListeningSockets> listening = ListeningSockets::Open(all);
    ASSERT_TRUE(listening.ok()) << listening.status();
    EXPECT_TRUE(Connects(*listening, "127.0.0.1")) << all;
    EXPECT_TRUE(Connects(*listening, "127.0.0.2")) << all;
    if (HasIpv6Loopback()) EXPECT_TRUE(Connects(*listening, "::1")) << all;
  }
  EXPECT_FALSE(Connects(*ListeningSockets::Open("127.0.0.1:0"), "127.0.0.2"));
}

TEST(ListeningSockets, AHostWithTwoAddressesHasOnePort) {
  if (!testing::KnowsLocalhost()) GTEST_SKIP() << "this system does not know localhost";
  const absl::StatusOr<ListeningSockets> listening = ListeningSockets::Open("localhost:0");
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_TRUE(absl::StartsWith(listening->address(), "localhost:"));
  EXPECT_FALSE(absl::EndsWith(listening->address(), ":0"));
  EXPECT_TRUE(Connects(*listening, "127.0.0.1"));
  if (listening->sockets().size() > 1) EXPECT_TRUE(Connects(*listening, "::1"));
  // Nobody else gets that port meanwhile, this process neither.
  ExpectRefusal(ListeningSockets::Open(listening->address()).status(), "is in use by this process");
}

TEST(ListeningSockets, AUnixSocketTakesTheDeadOnesPlaceAndGoesWithItsOwner) {
  const testing::TempFolder folder;
  const std::string path = folder.Path("w.sock");
  std::make_unique<Listener>(path).reset();  // which leaves it behind
  {
    const absl::StatusOr<ListeningSockets> listening =
        ListeningSockets::Open(absl::StrCat(kUnixPrefix, path));
    ASSERT_TRUE(listening.ok()) << listening.status();
    EXPECT_EQ(listening->address(), absl::StrCat("unix:", path));
    EXPECT_EQ(folder.Names(), std::vector<std::string>({"w.sock", "w.sock.lock"}));
    ExpectRefusal(ListeningSockets::Open(absl::StrCat(kUnixPrefix, path)).status(), "is in use");
  }
  EXPECT_TRUE(folder.Names().empty());
}

TEST(SocketLock, TellsWhatIsWrongWithAPathApart) {
  const testing::TempFolder folder;
  ExpectRefusal(SocketLock::Take(folder.Path("missing/w.sock")).status(),
                absl::StrCat("cannot listen on unix:", folder.Path("missing/w.sock"),
                             ": the folder ", folder.Path("missing"), ": No such file"));
  std::ofstream(folder.Path("file")) << "x";
  ExpectRefusal(SocketLock::Take(folder.Path("file")).status(), "and no socket");
  ExpectRefusal(SocketLock::Take(folder.Path("file/w.sock")).status(), "is no folder");
  ExpectRefusal(SocketLock::Take(folder.Path(std::string(120, 'x'))).status(),
                "bytes; the limit is 107");
  EXPECT_EQ(folder.Names(), std::vector<std::string>({"file"}));
}

TEST(SocketLock, IsOneProcessesUntilItGivesItBack) {
  const testing::TempFolder folder;
  const std::string path = folder.Path("w.sock");
  {
    const absl::StatusOr<SocketLock> first = SocketLock::Take(path);
    ASSERT_TRUE(first.ok()) << first.status();
    // It is a descriptor of its own: the lock keeps out this process like another.
    ExpectRefusal(SocketLock::Take(path).status(), "the socket is in use by this process: ");
  }
  EXPECT_TRUE(folder.Names().empty());
  EXPECT_TRUE(SocketLock::Take(path).ok());
}

TEST(SocketLock, ASocketThatIsListenedAtWithoutALockIsInUse) {
  const testing::TempFolder folder;
  const std::string path = folder.Path("w.sock");
  auto listener = std::make_unique<Listener>(path);
  ExpectRefusal(SocketLock::Take(path).status(), "the socket is in use by this process: ");
  EXPECT_EQ(folder.Names(), std::vector<std::string>({"w.sock"}));
  // Nobody owns the socket that the listener leaves behind.
  listener.reset();
  std::ofstream(folder.Path("w.sock.lock")) << "4194304";
  EXPECT_TRUE(SocketLock::Take(path).ok());
}

// A failed connect does not mean that somebody listens.
TEST(SocketLock, WhatCannotBeConnectedToIsNotInUse) {
  const testing::TempFolder folder;
  const std::string path = folder.Path("w.sock");
  {
    // Every descriptor is taken but one, which the lock gets.
    const int next = dup(STDIN_FILENO);
    close(next);
    rlimit limit;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const absl::Cleanup restore = [limit] { setrlimit(RLIMIT_NOFILE, &limit); };
    const rlimit few = {static_cast<rlim_t>(next) + 1, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    ExpectRefusal(SocketLock::Take(path).status(),
                  absl::StrCat("cannot listen on unix:", path,
                               ": connecting to the socket: Too many open files"));
  }
  const int other = socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(other, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ExpectRefusal(SocketLock::Take(path).status(),
                "connecting to the socket: Protocol wrong type for socket");
  close(other);
}

}  // namespace
}  // namespace warpcall
