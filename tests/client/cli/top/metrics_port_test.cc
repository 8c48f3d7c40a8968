// A metrics port that takes connections and never answers.
#include "client/cli/top/metrics_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace warpcall::cli {
namespace {

class MetricsPortTest : public ::testing::Test {
 protected:
  MetricsPortTest() {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(name);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&name), bytes), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &bytes);
    address_ = absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
    EXPECT_EQ(pipe(cancel_), 0);
  }
  ~MetricsPortTest() override {
    for (const int descriptor : {listener_, cancel_[0], cancel_[1]}) close(descriptor);
  }

  const int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string address_;
  int cancel_[2];
};

TEST_F(MetricsPortTest, SilenceEndsAtTheDeadline) {
  const auto port = MetricsPort::Find(address_);
  ASSERT_TRUE(port.ok()) << port.status();
  const absl::Status status = port->ReadStatus(absl::Milliseconds(50)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(),
            absl::StrCat("no metrics port answers at ", address_,
                         ": it does not answer in time; is warpcalld running there, with "
                         "--metrics_listen=",
                         address_, "? --metrics names another port"));
}

TEST_F(MetricsPortTest, WhoNoLongerWantsTheAnswerDoesNotWaitForIt) {
  const auto port = MetricsPort::Find(address_);
  ASSERT_TRUE(port.ok()) << port.status();
  ASSERT_EQ(write(cancel_[1], "x", 1), 1);
  EXPECT_EQ(port->ReadStatus(absl::Seconds(60), cancel_[0]).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(MetricsPortTest, AddressesHaveADefaultPortAndMayBeOfIpv6) {
  for (const auto& [given, found] :
       std::vector<std::pair<std::string, std::string>>{{"127.0.0.1", "127.0.0.1:9470"},
                                                        {"127.0.0.1:80", "127.0.0.1:80"},
                                                        {"http://127.0.0.1:80/", "127.0.0.1:80"},
                                                        {"[::1]", "[::1]:9470"},
                                                        {"[::1]:80", "[::1]:80"},
                                                        {"::1", "[::1]:9470"}}) {
    const auto port = MetricsPort::Find(given);
    ASSERT_TRUE(port.ok()) << given << ": " << port.status();
    EXPECT_EQ(port->address(), found);
  }
}

}  // namespace
}  // namespace warpcall::cli
