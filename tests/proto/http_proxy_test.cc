#include "proto/common/http_proxy.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace warpcall {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<HttpProxy> ProxyOf(const std::string& address, const Variables& variables) {
  return HttpProxyFor(address, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(HttpProxyTest, OneRuleForBothClients) {
  std::ifstream file(HTTP_PROXY_CASES);
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> columns = absl::StrSplit(line, ' ', absl::SkipEmpty());
    ASSERT_EQ(columns.size(), 3u) << line;
    Variables variables = {{"http_proxy", "http://proxy.example:3128"}};
    if (columns[1] != "-") variables["no_proxy"] = columns[1];
    EXPECT_EQ(ProxyOf(columns[0], variables).has_value(), columns[2] == "proxy") << line;
    ++cases;
  }
  EXPECT_GT(cases, 40);
}

TEST(HttpProxyTest, TheFirstVariableThatIsSetCounts) {
  Variables variables;
  EXPECT_FALSE(ProxyOf("gpu.example:1", variables).has_value());
  for (const std::string name : {"http_proxy", "https_proxy", "grpc_proxy"}) {
    variables[name] = "http://" + name + ":3128";
    const auto proxy = ProxyOf("gpu.example:1", variables);
    ASSERT_TRUE(proxy.has_value());
    EXPECT_EQ(proxy->address, name + ":3128");
    EXPECT_EQ(proxy->variable, name);
  }
  variables["no_proxy"] = "example";
  EXPECT_FALSE(ProxyOf("gpu.example:1", variables).has_value());
  variables["no_grpc_proxy"] = "other";
  EXPECT_TRUE(ProxyOf("gpu.example:1", variables).has_value());
}

TEST(HttpProxyTest, ItsNameHasNoPassword) {
  const auto proxy =
      ProxyOf("gpu.example:1", {{"http_proxy", "http://me:se@cret@proxy.example:3128/path"}});
  ASSERT_TRUE(proxy.has_value());
  EXPECT_EQ(proxy->address, "proxy.example:3128");
}

TEST(HttpProxyTest, WhatGrpcTakesForNoneIsNone) {
  for (const char* const value : {"", "proxy.example:3128", "https://proxy.example:3128",
                                  "socks5://proxy.example:1080", "http://", "http://me@"})
    EXPECT_FALSE(ProxyOf("gpu.example:1", {{"http_proxy", value}}).has_value()) << value;
}

}  // namespace
}  // namespace warpcall
