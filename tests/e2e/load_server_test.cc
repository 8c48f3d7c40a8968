// `warpcall load` and a real server agree on what was sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/e2e/server_process.h"
#include "tests/programs.h"

namespace warpcall::testing {
namespace {

using nlohmann::json;

json Load(const ServerProcess& server, const std::string& arguments, int exit_status) {
  const ProgramResult run = RunProgram(absl::StrCat(
      "'", ProgramPath("warpcall"), "' load --json --server ", server.address(), " ", arguments));
  EXPECT_EQ(run.exit_status, exit_status) << run.err << run.out;
  json result = json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(result.is_object()) << run.err << run.out;
  return result;
}

double Requests(const ServerProcess& server, const std::string& label) {
  return server.Sum("warpcall_requests_total", {label});
}

TEST(LoadServerTest, AClosedLoopIsCountedAlikeOnBothSides) {
  ServerProcess server;
  const json result =
      Load(server, "identity:1000 --concurrency 4 --duration 0.5 --warmup 0.2 --check", 0);
  const double sent =
      result["all"]["sent"].get<double>() + result["warmup"]["requests"].get<double>();
  EXPECT_GT(result["all"]["sent"], 4);
  EXPECT_EQ(server.Sum("warpcall_requests_total"), sent);
  EXPECT_EQ(Requests(server, "code=\"OK\""), sent);
  EXPECT_EQ(result["all"]["input_bytes"], result["all"]["sent"].get<int64_t>() * 4000);
  EXPECT_EQ(result["all"]["phases"]["total"]["count"], result["all"]["sent"]);
  EXPECT_LE(result["all"]["phases"]["total"]["p50_ns"], result["all"]["latency"]["p99_ns"]);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(LoadServerTest, AnOpenLoopIsCountedAlikeByKernelAndByCode) {
  ServerProcess server;
  const json result = Load(server,
                           "--mix 'gelu[approximate=none]:4096=5,softmax[axis=0]:64x100:bf16=3,"
                           "matmul[transpose_b=true]:2x16x32*8x32:f16=2,matmul:4x5=1'"
                           " --rate 400 --requests 300 --warmup 0 --check",
                           1);
  EXPECT_EQ(result["planned"], 300);
  EXPECT_EQ(result["all"]["sent"], 300);
  const json& entries = result["entries"];
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GT(entries[i]["ok"], 0);
    EXPECT_EQ(entries[i]["failed"], 0) << entries[i]["statuses"];
  }
  EXPECT_EQ(entries[3]["shapes"], json({{4, 5}, {4, 5}}));
  EXPECT_EQ(entries[3]["ok"], 0);
  EXPECT_EQ(server.Sum("warpcall_requests_total"), 300);
  EXPECT_EQ(Requests(server, "kernel=\"gelu\""), entries[0]["sent"].get<double>());
  EXPECT_EQ(Requests(server, "kernel=\"softmax\""), entries[1]["sent"].get<double>());
  EXPECT_EQ(Requests(server, "code=\"INVALID_ARGUMENT\""),
            entries[3]["statuses"]["INVALID_ARGUMENT"]["count"].get<double>());
  EXPECT_EQ(Requests(server, "code=\"OK\""), result["all"]["ok"].get<double>());
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
