#include "server/flags/exposure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/system/listen.h"
#include "tests/known_localhost.h"

namespace warpcall {
namespace {

using ::testing::HasSubstr;

Config At(std::vector<std::string> addresses) {
  Config config;
  config.listen = std::move(addresses);
  return config;
}

TEST(IsLocalTest, KnowsThisMachinesAddressesFromOthers) {
  for (const char* local : {"127.0.0.1:8470", "127.8.9.10:0", "[::1]:8470", "[::ffff:127.0.0.1]:1",
                            "unix:/run/warpcalld.sock"})
    EXPECT_TRUE(IsLocal(local)) << local;
  EXPECT_EQ(IsLocal("localhost:1"), testing::KnowsLocalhost());
  for (const char* other : {"0.0.0.0:8470", "[::]:8470", "192.0.2.1:8470", "[2001:db8::1]:1",
                            "[::ffff:192.0.2.1]:1", "128.0.0.1:1", "no host:1", "127.0.0.1"})
    EXPECT_FALSE(IsLocal(other)) << other;
}

TEST(CheckExposureTest, OtherMachinesMayCallOnPurposeOnly) {
  EXPECT_TRUE(CheckExposure(At({"127.0.0.1:8470", "unix:/s"})).ok());
  Config config = At({"unix:/s", "0.0.0.0:8470"});
  const absl::Status refusal = CheckExposure(config);
  EXPECT_EQ(refusal.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* said : {"--listen=0.0.0.0:8470", "--tls_cert", "--token_file", "--insecure",
                           "--listen=127.0.0.1:8470"})
    EXPECT_THAT(refusal.message(), HasSubstr(said));
  // Certificates of clients without the server's own are refused elsewhere; a policy keeps nobody
  // out by itself.
  config.policy_file = "policies";
  EXPECT_FALSE(CheckExposure(config).ok());
  for (std::string Config::*const file : {&Config::tls_cert, &Config::token_file}) {
    Config with = config;
    with.*file = "file";
    EXPECT_TRUE(CheckExposure(with).ok());
  }
  config.insecure = true;
  EXPECT_TRUE(CheckExposure(config).ok());
}

TEST(GrpcWarningTest, WarnsOfVersionsWithKnownDefectsWhereOthersReachThem) {
  const Config open = At({"0.0.0.0:8470"});
  for (const char* old : {"1.51.1", "1.9.9", "1.65.3", "1.65", "0.99.9", "nonsense"})
    EXPECT_THAT(GrpcWarning(open, old), HasSubstr("mended in 1.65.4")) << old;
  for (const char* mended : {"1.65.4", "1.65.5-dev", "1.66.0", "1.100.0", "2.0.0"})
    EXPECT_EQ(GrpcWarning(open, mended), "") << mended;
  EXPECT_EQ(GrpcWarning(At({"127.0.0.1:8470"}), "1.51.1"), "");
}

}  // namespace
}  // namespace warpcall
