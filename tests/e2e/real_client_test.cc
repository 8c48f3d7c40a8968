// The client library and the users' programs, `warpcall` and the digits example, against the real
// server. Elsewhere they meet a server whose answers the tests decide.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/server_process.h"
#include "tests/programs.h"
#include "tests/temp_folder.h"
#include "warpcall/client.h"
#include "warpcall/npy.h"

namespace warpcall::testing {
namespace {

using client::Tensor;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;


class RealClientTest : public ::testing::Test {
 protected:
  // A message limit that a few MiB exceed, for streams.
  static void SetUpTestSuite() { server_ = new ServerProcess({"--max_message_mib=4"}); }
  static void TearDownTestSuite() {
    EXPECT_EQ(server_->Stop(), 0) << server_->log();
    delete server_;
  }

  ProgramResult Warpcall(const std::string& arguments) const {
    return RunProgram(absl::StrCat("cd '", folder_.Path(""), "' && '", ProgramPath("warpcall"),
                                   "' --server ", server_->address(), " ", arguments));
  }
  // Runs and expects success.
  json WarpcallJson(const std::string& arguments) const {
    const ProgramResult run = Warpcall("--json " + arguments);
    EXPECT_EQ(run.exit_status, 0) << run.err << run.out;
    json result = json::parse(run.out, nullptr, /*allow_exceptions=*/false);
    EXPECT_FALSE(result.is_discarded()) << run.out;
    return result;
  }

  // N(0, 1) in a file of the folder.
  std::vector<float> WriteRandom(const std::string& name, const std::vector<int64_t>& shape) const {
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    std::mt19937 random(std::random_device{}());
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(elements));
    for (float& value : values) value = normal(random);
    EXPECT_TRUE(client::WriteNpy(folder_.Path(name), Tensor::FromFloats(shape, values)).ok());
    return values;
  }
  std::vector<float> Read(const std::string& name) const {
    const auto tensor = client::ReadNpy(folder_.Path(name));
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    if (!tensor.ok()) return {};
    return tensor->ToFloats();
  }

  static ServerProcess* server_;
  TempFolder folder_;
};

ServerProcess* RealClientTest::server_;

TEST_F(RealClientTest, ARefusalSaysWhyAndLeavesTheOutputAsItWas) {
  WriteRandom("x.npy", {4, 4});
  WriteRandom("y.npy", {2, 2});
  const std::vector<float> before = Read("y.npy");
  const ProgramResult run = Warpcall("run softmax --input x.npy --output y.npy --attribute axis=7");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("INVALID_ARGUMENT: attribute axis is 7"));
  EXPECT_EQ(Warpcall("run softmax --input x.npy --output z.npy --attribute axis=7").exit_status, 1);
  EXPECT_EQ(Read("y.npy"), before);
  EXPECT_THAT(folder_.Names(), ElementsAre("x.npy", "y.npy"));
  EXPECT_EQ(Warpcall("run softmax --input missing.npy").exit_status, 2);
}

// Both sides count alike, by kernel and by code; one entry is refused. Covers each kernel that the
// list says has a shared input.
TEST_F(RealClientTest, OneShapeIsEnoughForKernelsWithWeights) {
  std::set<std::string> kernels;
  client::Client client(server_->address());
  const auto list = client.ListKernels();
  ASSERT_TRUE(list.ok()) << list.status();
  for (const client::KernelInfo& kernel : *list)
    for (const client::OperandRole role : kernel.input_roles)
      if (role == client::OperandRole::kShared) kernels.insert(kernel.name);
  EXPECT_THAT(kernels, ::testing::IsSupersetOf({"layernorm", "rmsnorm", "linear"}));
  for (const std::string& kernel : kernels) {
    for (const char* const command : {"run", "describe", "profile", "bench --iterations 2"}) {
      const std::string line = absl::StrCat(command, " ", kernel, " --shape 4x3x8");
      EXPECT_EQ(Warpcall(line).exit_status, 0) << line;
    }
  }
  EXPECT_THAT(Warpcall("load linear:4x8 --requests 1").err,
              HasSubstr("1 shape, but linear takes 3: x, weight, bias, with * between them"));
}

TEST_F(RealClientTest, LoadIsCountedAlikeOnBothSides) {
  const auto counted = [&] {
    return std::map<std::string, double>{
        {"gelu", server_->Sum("warpcall_requests_total", {"kernel=\"gelu\"", "code=\"OK\""})},
        {"softmax", server_->Sum("warpcall_requests_total", {"kernel=\"softmax\""})},
        {"refused", server_->Sum("warpcall_requests_total",
                                 {"kernel=\"matmul\"", "code=\"INVALID_ARGUMENT\""})},
        {"all", server_->Sum("warpcall_requests_total")}};
  };
  const std::string mix =
      " --mix 'gelu[approximate=none]:4096=5,softmax[axis=0]:64x100:bf16=3,"
      "matmul[transpose_b=true]:2x16x32*8x32:f16=2,matmul:4x5=1' --warmup 0 --check --json";
  for (const char* const loop : {"--rate 400 --requests 300", "--concurrency 4 --requests 300"}) {
    std::map<std::string, double> before = counted();
    const ProgramResult run = Warpcall(absl::StrCat("load ", loop, mix));
    EXPECT_EQ(run.exit_status, 1) << run.err;
    const json result = json::parse(run.out);
    std::map<std::string, double> now = counted();
    for (auto& [name, count] : now) count -= before[name];
    const json& entries = result["entries"];
    EXPECT_EQ(now["gelu"], entries[0]["ok"]);
    EXPECT_EQ(now["softmax"], entries[1]["ok"]);
    EXPECT_EQ(now["refused"], entries[3]["statuses"]["INVALID_ARGUMENT"]["count"]);
    EXPECT_EQ(now["all"], 300);
    EXPECT_EQ(result["all"]["sent"], 300);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(entries[i]["failed"], 0) << entries[i]["statuses"];
    EXPECT_EQ(entries[2]["input_bytes"],
              entries[2]["ok"].get<int64_t>() * 2 * (2 * 16 * 32 + 8 * 32));
    EXPECT_EQ(entries[3]["shapes"], json({{4, 5}, {4, 5}}));
    EXPECT_EQ(entries[3]["ok"], 0);
    const json& all = result["all"];
    EXPECT_EQ(all["phases"]["total"]["count"], all["ok"]);
    EXPECT_LE(all["phases"]["total"]["p50_ns"], all["latency"]["p99_ns"]);
  }
}

// README's example at another size: the bound, why, how far from the ceiling, what to try.
TEST_F(RealClientTest, ProfileBeginsWithWhatBoundsTheKernel) {
  const ProgramResult run =
      Warpcall("profile softmax --shape 1024x1024 --type bf16 --deadline 600");
  EXPECT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = absl::StrSplit(run.out, '\n');
  ASSERT_GT(lines.size(), 6u);
  EXPECT_EQ(lines[0], "softmax on cpu by cpu:simd_rows, 3 iterations");
  // Other tests may leave the kernel's threads too few cores.
  const bool inconclusive = absl::StartsWith(lines[1], "Inconclusive: other work took ");
  if (!inconclusive)
    EXPECT_THAT(lines[1],
                ::testing::ContainsRegex("^Bound by (memory|compute|latency|launch): .*[0-9]"));
  EXPECT_EQ(absl::StrContains(run.out, "\n- "), !inconclusive);
  // 2 MiB in, 2 MiB out, beside a copy that somebody has measured by now.
  const json report = WarpcallJson("profile softmax --shape 1024x1024 --type bf16 --deadline 600");
  const json& figures = report["figures"];
  EXPECT_EQ(figures["least_bytes"], 4 << 20);
  EXPECT_GT(figures["ceiling_bytes_per_second"], 0);
  EXPECT_GT(figures["fraction_of_ceiling"], 0);
  EXPECT_GE(figures["passes_max"].get<double>() * figures["fraction_of_ceiling"].get<double>(),
            0.999);
  EXPECT_GT(figures["threads_busy"], 0);
  EXPECT_LE(figures["threads_busy"], 1.1);
  EXPECT_NE(report["verdict"]["bound"], "unknown");
}

TEST_F(RealClientTest, ProfileComparesTwoImplementations) {
  const json report = WarpcallJson(
      "profile softmax --shape 512x512 --implementation cpu --implementation manual "
      "--deadline 600");
  ASSERT_EQ(report["profiles"].size(), 2u);
  EXPECT_EQ(report["profiles"][0]["variant"], "simd_rows");
  EXPECT_EQ(report["profiles"][1]["variant"], "chain_of_loops");
  const auto kernel_ns = [&](int which) {
    return report["profiles"][which]["figures"]["kernel_ns"].get<double>();
  };
  EXPECT_NEAR(report["comparison"]["ratios"]["kernels' time"].get<double>(),
              kernel_ns(1) / kernel_ns(0), 1e-6);
  EXPECT_FALSE(report["comparison"]["reasons"].empty());
}

TEST_F(RealClientTest, ProfileLooksAtTheKernelOrAtTheWholeRequest) {
  const auto phases = [&](const std::string& arguments) {
    std::set<std::string> names;
    const json report =
        WarpcallJson("profile gelu --deadline 600 --type bf16 --shape " + arguments);
    for (const json& row : report["rows"]) names.insert(row["name"].get<std::string>());
    return names;
  };
  const auto kernel = phases("16777216");  // 32 MiB, which no message here could hold
  const auto request = phases("1000000 --request");
  EXPECT_THAT(kernel, AllOf(Contains("simd_fused"), Not(Contains("queue"))));
  EXPECT_THAT(request, AllOf(Contains("simd_fused"), Contains("queue"), Contains("copy_in")));
  EXPECT_THAT(Warpcall("profile gelu --type bf16 --shape 16777216 --request").err,
              HasSubstr("RESOURCE_EXHAUSTED"));
}

TEST_F(RealClientTest, DigitsAreReadAsWellAsByNumPy) {
  const ProgramResult run =
      RunProgram(absl::StrCat("'", ProgramPath("digits"), "' --server ", server_->address(),
                              " --data '", DIGITS_DATA, "'"));
  EXPECT_EQ(run.exit_status, 0) << run.err;
  for (const char* const way : {"linear, linear, softmax", "matmul, fused, matmul, fused"})
    EXPECT_THAT(run.out, HasSubstr(absl::StrCat(way, ": 437 of 450")));  // train.py's output
  EXPECT_EQ(
      std::vector<std::string>(absl::StrSplit(run.out, "same digit as NumPy: 450 of 450")).size(),
      3u);
}

TEST_F(RealClientTest, ReadmesLinesForCppWork) {
  const ProgramResult run =
      RunProgram(absl::StrCat("'", README_CLIENT_PATH, "' ", server_->address()));
  EXPECT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> words = absl::StrSplit(run.out, absl::ByAnyChar(" \n"));
  ASSERT_GE(words.size(), 7u) << run.out;
  EXPECT_NEAR(std::stod(words[2]), std::exp(3.0) / (std::exp(1.0) + std::exp(2.0) + std::exp(3.0)),
              1e-6);
  EXPECT_NEAR(std::stod(words[3]), 1.0 / 3, 1e-7);
  EXPECT_GT(std::stoll(words[6]), 0);
}

}  // namespace
}  // namespace warpcall::testing
