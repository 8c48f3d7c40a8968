#include "server/transport/acceptor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "proto/common/steady_wait.h"
#include "server/engine/clock.h"
#include "tests/e2e/eventually.h"

namespace warpcall {
namespace {

using ::testing::ElementsAre;

// An acceptor at a free port of 127.0.0.1, and the fate of its connections.
class AcceptorTest : public ::testing::Test {
 protected:
  // accept returns `errors` first, before it works.
  void Start(std::vector<int> errors, ConnectionLimits limits = {1000, 1000},
             const std::string& wanted = "127.0.0.1:0") {
    errors_ = std::move(errors);
    absl::StatusOr<ListeningSockets> sockets = ListeningSockets::Open(wanted);
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    const std::string& address = sockets->address();
    port_ = static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1));
    std::vector<ListeningSockets> listening;
    listening.push_back(*std::move(sockets));
    Acceptor::Options options;
    connections_.emplace(limits, MonotonicNs);
    options.connections = &*connections_;
    options.accept = [this](int listener) { return Accept(listener); };
    options.serve = [this](int, int socket) {
      const absl::MutexLock lock(&mutex_);
      served_.push_back(socket);
    };
    options.on_refused = [this] {
      const absl::MutexLock lock(&mutex_);
      ++refused_;
    };
    options.on_accepting = [this](bool accepting) {
      const absl::MutexLock lock(&mutex_);
      told_.push_back(accepting);
    };
    acceptor_ = *Acceptor::Start(std::move(listening), std::move(options));
  }

  ~AcceptorTest() override {
    acceptor_.reset();
    for (const int socket : served_) close(socket);
    for (const int client : clients_) close(client);
  }

  int Accept(int listener) {
    const absl::MutexLock lock(&mutex_);
    ++attempts_;
    if (!errors_.empty()) {
      const int error = errors_.back();
      errors_.pop_back();
      return -error;
    }
    const int socket = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return socket < 0 ? -errno : socket;
  }

  int Connect() {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    const timeval patience = {10, 0};  // an accepted client would read for ever
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    EXPECT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    clients_.push_back(client);
    return client;
  }

  bool AwaitServed(size_t count) {
    return testing::Eventually([&] {
      const absl::MutexLock lock(&mutex_);
      return served_.size() >= count;
    });
  }
  bool AwaitTold(size_t count) {
    return testing::Eventually([&] {
      const absl::MutexLock lock(&mutex_);
      return told_.size() >= count;
    });
  }

  uint16_t port_ = 0;
  absl::Mutex mutex_;
  std::vector<int> errors_;
  int attempts_ = 0;
  std::vector<int> served_;
  int refused_ = 0;
  std::vector<bool> told_;
  std::vector<int> clients_;
  std::optional<Connections> connections_;
  std::unique_ptr<Acceptor> acceptor_;
};

class AnyErrorTest : public AcceptorTest, public ::testing::WithParamInterface<int> {};

TEST_P(AnyErrorTest, AcceptGoesOnAfterIt) {
  Start({GetParam()});
  Connect();
  EXPECT_TRUE(AwaitServed(1));
  Connect();
  EXPECT_TRUE(AwaitServed(2));
}

INSTANTIATE_TEST_SUITE_P(Errors, AnyErrorTest,
                         ::testing::Values(ECONNABORTED, EMFILE, ENFILE, ENOBUFS, ENOMEM, EPERM,
                                           EPROTO, EHOSTUNREACH, EINTR, EINVAL, EIO, ENOSR));

TEST_F(AcceptorTest, AnErrorOfOneConnectionIsNoPause) {
  Start({ECONNABORTED, EPERM, EPROTO});
  Connect();
  EXPECT_TRUE(AwaitServed(1));
  acceptor_->Stop();
  EXPECT_TRUE(told_.empty());
}

TEST_F(AcceptorTest, WithoutDescriptorsItSaysSoAndWaitsBetweenAttempts) {
  const SteadyTime start = SteadyAfter(absl::ZeroDuration());
  Start(std::vector<int>(5, EMFILE));
  Connect();
  EXPECT_TRUE(AwaitServed(1));
  EXPECT_TRUE(AwaitTold(2));
  EXPECT_GE(-UntilSteady(start), 5 * Acceptor::kPause);
  acceptor_->Stop();
  EXPECT_THAT(told_, ElementsAre(false, true));
}

// A system that has every connection refused, as a filter of system calls does.
TEST_F(AcceptorTest, ErrorsOfConnectionsWithoutEndArePauses) {
  Start(std::vector<int>(1000, EPERM));
  Connect();
  ASSERT_TRUE(AwaitTold(1));
  acceptor_->Stop();
  EXPECT_FALSE(told_.front());
  EXPECT_FALSE(errors_.empty());
}

TEST_F(AcceptorTest, WhoIsOneTooManyIsTurnedAwayUntilAnotherLeaves) {
  Start({}, {2, 2});
  Connect();
  Connect();
  EXPECT_TRUE(AwaitServed(2));
  EXPECT_TRUE(AwaitTold(1));
  char byte;
  EXPECT_EQ(read(Connect(), &byte, 1), 0);
  close(served_.front());
  EXPECT_TRUE(AwaitTold(2));
  Connect();
  EXPECT_TRUE(AwaitServed(3));
  EXPECT_TRUE(AwaitTold(3));
  served_.erase(served_.begin());
  acceptor_->Stop();
  EXPECT_THAT(told_, ElementsAre(false, true, false));
  EXPECT_EQ(refused_, 1);
}

TEST_F(AcceptorTest, OneAddressMayNotTakeAllAndIsNotTold) {
  Start({}, {3, 1});
  Connect();
  EXPECT_TRUE(AwaitServed(1));
  char byte;
  EXPECT_EQ(read(Connect(), &byte, 1), 0);
  acceptor_->Stop();
  EXPECT_EQ(refused_, 1);
  EXPECT_TRUE(told_.empty());
}

// A call that outlasts its connection must not pass for one of the next.
TEST_F(AcceptorTest, ConnectionsOfAUnixSocketHaveOtherDescriptorsThanThoseBefore) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/acceptor-", getpid(), ".sock");
  Start({}, {1000, 1000}, absl::StrCat("unix:", path));
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  path.copy(to.sun_path, sizeof(to.sun_path) - 1);
  std::set<int> descriptors;
  for (int i = 0; i < 50; ++i) {
    const int client = socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    ASSERT_TRUE(AwaitServed(1));
    const absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(descriptors.insert(served_.front()).second) << served_.front();
    EXPECT_NE(fcntl(served_.front(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_EQ(fcntl(served_.front(), F_GETFD), FD_CLOEXEC);
    close(served_.front());
    close(client);
    served_.clear();
  }
}

TEST_F(AcceptorTest, WhoConnectsAfterTheEndIsRefusedByTheSystem) {
  Start({});
  acceptor_->Stop();
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  clients_.push_back(client);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port_);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
}

}  // namespace
}  // namespace warpcall
