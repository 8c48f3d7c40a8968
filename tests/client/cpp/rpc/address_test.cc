#include "client/cpp/rpc/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace warpcall::client {
namespace {

using ::testing::HasSubstr;

TEST(ParseAddressTest, WithoutAPortItIs8470) {
  for (const auto& [text, address] : std::vector<std::pair<std::string, std::string>>{
           {"127.0.0.1", "127.0.0.1:8470"},
           {"gpu.example", "gpu.example:8470"},
           {"::1", "[::1]:8470"},
           {"[::1]", "[::1]:8470"},
           {"127.0.0.1:1", "127.0.0.1:1"},
           {"gpu.example:65535", "gpu.example:65535"},
           {"[::1]:80", "[::1]:80"},
           {"unix:/run/warpcall.sock", "unix:/run/warpcall.sock"},
           {"unix:///run/warpcall.sock", "unix:///run/warpcall.sock"},
           {"dns:///gpu.example:80", "dns:///gpu.example:80"},
           {"ipv4:127.0.0.1:80,127.0.0.1:81", "ipv4:127.0.0.1:80,127.0.0.1:81"},
       }) {
    const auto parsed = ParseAddress(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, address);
  }
}

TEST(ParseAddressTest, ListsAndNamesOfASchemeMayBeSeveralServers) {
  for (const char* const address :
       {"dns:///gpu.example:80", "ipv4:127.0.0.1:80,127.0.0.1:81", "ipv6:[::1]:80,[::1]:81"})
    EXPECT_TRUE(MayBeSeveral(address)) << address;
  for (const char* const address : {"gpu.example:80", "[::1]:80", "unix:/run/warpcall.sock"})
    EXPECT_FALSE(MayBeSeveral(address)) << address;
}

TEST(ParseAddressTest, RefusalsNameWhatIsWrong) {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "is empty"},
           {"h:0", "port '0'; a port is a number from 1 to 65535"},
           {"h:65536", "port '65536'; a port is a number from 1 to 65535"},
           {"h:99999999999999999999", "from 1 to 65535"},
           {"h:", "port ''"},
           {"h:+80", "port '+80'"},
           {"h:http", "port 'http'"},
           {":8470", "no host"},
           {"[::1", "'[' without ']'"},
           {"[::1]x", "behind its ']'"},
           {"http://h:80", "it is host, host:port or unix:/path"},
           {"unix:", "no path"},
           {"unix:/" + std::string(200, 's'), "201 bytes; that of a socket has at most 107"},
       }) {
    const auto parsed = ParseAddress(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(message)) << text;
  }
}

std::string Explained(const std::string& message, const std::string& address) {
  const absl::Status status = ExplainConnection(absl::UnavailableError(message), address);
  EXPECT_TRUE(absl::IsUnavailable(status));
  return std::string(status.message());
}

TEST(ExplainConnectionTest, EachCauseHasItsSentence) {
  const std::string failed = "failed to connect to all addresses; last error: UNKNOWN: ";
  EXPECT_THAT(Explained(failed + "ipv4:127.0.0.1:1: Failed to connect to remote host: Connection "
                                 "refused",
                        "localhost:1"),
              HasSubstr("no server listens on localhost:1 (connection refused)"));
  EXPECT_THAT(Explained(failed + "unix:/s: No such file or directory", "unix:/s"),
              HasSubstr("there is no socket /s"));
  EXPECT_THAT(Explained(failed + "unix:/s: Connection refused", "unix:///s"),
              HasSubstr("no server listens on the socket /s"));
  EXPECT_EQ(
      Explained(failed + "ipv4:10.0.0.1:1: Failed to connect to remote host: No route to host",
                "10.0.0.1:1"),
      "can't connect to 10.0.0.1:1: No route to host");
  EXPECT_EQ(Explained(failed + "ipv4:10.0.0.1:1: Socket closed", "h:1"),
            "can't connect to h:1: Socket closed; does it have TLS, or want a client's "
            "certificate, or another?");
  EXPECT_THAT(Explained("empty address list: ", "h:1"), HasSubstr("with these TLS files"));
  EXPECT_EQ(Explained("DNS resolution failed for nosuch:8470: C-ares status is not ARES_SUCCESS "
                      "qtype=A name=nosuch is_balancer=0: Domain name not found",
                      "nosuch:8470"),
            "the host 'nosuch' is unknown: Domain name not found");
  EXPECT_EQ(Explained("errors resolving nosuch:8470: [field:hostname lookup error:address lookup "
                      "failed for nosuch:8470: Domain name not found]",
                      "nosuch:8470"),
            "the host 'nosuch' is unknown: Domain name not found");
}

TEST(ExplainConnectionTest, ADeadlineThatOnlyTheClientSawIsSaidToBeThat) {
  EXPECT_EQ(ExplainConnection(absl::DeadlineExceededError("Deadline Exceeded"), "h:1"),
            absl::DeadlineExceededError(
                "no answer of h:1 before the deadline; the server's log says where the time went"));
  const absl::Status of_the_server = absl::DeadlineExceededError("it passed in the queue");
  EXPECT_EQ(ExplainConnection(of_the_server, "h:1"), of_the_server);
}

TEST(ExplainConnectionTest, AProxyThatFailsIsNamed) {
  const HttpProxy proxy = {"proxy.example:3128", "http_proxy"};
  const std::string through =
      "can't connect to gpu:1 through the proxy proxy.example:3128 (http_proxy): ";
  for (const auto& [status, cause] : std::vector<std::pair<absl::Status, std::string>>{
           {absl::UnavailableError("failed to connect to all addresses; last error: UNKNOWN: "
                                   "ipv4:10.0.0.1:3128: HTTP proxy returned response code 502"),
            "HTTP proxy returned response code 502"},
           {absl::UnavailableError("DNS resolution failed for proxy.example:3128: Domain name not "
                                   "found"),
            "Domain name not found"},
           {absl::DeadlineExceededError("Deadline Exceeded"), "Deadline Exceeded"},
       })
    EXPECT_EQ(ExplainConnection(status, "gpu:1", proxy),
              absl::Status(status.code(), through + cause));
  for (const absl::Status& status : {absl::UnavailableError("the server is draining"),
                                     absl::DeadlineExceededError("the queue is longer than that"),
                                     absl::NotFoundError("last error: x")})
    EXPECT_EQ(ExplainConnection(status, "gpu:1", proxy), status);
}

TEST(ExplainConnectionTest, LeavesWhatIsNoFailureToConnect) {
  EXPECT_EQ(Explained("the server is draining", "h:1"), "the server is draining");
  EXPECT_EQ(Explained("Socket closed", "h:1"), "Socket closed");
  const absl::Status other = absl::NotFoundError("last error: x: Connection refused");
  EXPECT_EQ(ExplainConnection(other, "h:1"), other);
}

}  // namespace
}  // namespace warpcall::client
