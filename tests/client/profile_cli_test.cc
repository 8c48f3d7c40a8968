// `warpcall profile` as its users have it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/npy.h"
#include "tests/client/fake_server.h"
#include "tests/client/subprocess.h"
#include "tests/client/temp_folder.h"
#include "tests/programs.h"

namespace warpcall::cli {
namespace {

using client::Tensor;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using warpcall::testing::FakeAnswer;
using warpcall::testing::FakeServer;
using warpcall::testing::ProgramPath;
using warpcall::testing::ProgramResult;
using warpcall::testing::RunProgram;
using warpcall::testing::TempFolder;

constexpr char kLongName[] =
    "void warpcall::softmax::SubwarpPerRow<__nv_bfloat16, 4, 32>(Operands, long, long)";
constexpr char kTrace[] = R"({"traceEvents": []})";

void AddRow(const std::string& name, const std::string& kind, int64_t total_ns,
            v1::ProfileResponse* response) {
  v1::ProfileRow* row = response->add_rows();
  row->set_name(name);
  row->set_kind(kind);
  row->set_calls(3);
  row->set_total_ns(total_ns);
  row->set_mean_ns(static_cast<double>(total_ns) / 3);
  row->set_fraction(kind == "host" ? 0 : static_cast<double>(total_ns) / 100'000);
  row->set_achieved_occupancy(-1);
  row->set_sm_throughput(-1);
  row->set_dram_throughput(-1);
}

// A kernel with all counters, a copy, a gap, a phase of the host.
FakeAnswer FourRows(const v1::ProfileRequest& request, v1::ProfileResponse* response) {
  response->set_implementation("subwarp_per_row");
  response->set_device("cuda:0");
  response->set_iterations(3);
  AddRow("parse", "host", 90'000, response);
  AddRow(kLongName, "kernel", 60'000, response);
  v1::ProfileRow* kernel = response->mutable_rows(1);
  kernel->set_registers_per_thread(40);
  kernel->set_shared_memory_bytes(2048);
  kernel->set_grid("128,1,1");
  kernel->set_block("256,1,1");
  kernel->set_achieved_occupancy(0.5);
  kernel->set_sm_throughput(0.25);
  kernel->set_dram_throughput(0.925);
  AddRow("copy in", "copy", 30'000, response);
  response->mutable_rows(2)->set_bytes(1 << 20);
  AddRow("idle", "gap", 10'000, response);
  if (request.trace()) response->set_trace_json(kTrace);
  return {};
}

class ProfileCliTest : public ::testing::Test {
 protected:
  ProfileCliTest() : server_(warpcall::testing::EchoInputs) {
    server_.AnswerProfile([this](const v1::ProfileRequest& request, v1::ProfileResponse* response) {
      absl::MutexLock lock(&mutex_);
      seen_ = request;
      return answer_ == nullptr ? FourRows(request, response) : answer_(request, response);
    });
    EXPECT_TRUE(client::WriteNpy(x_, Tensor::FromFloats({2, 2}, {1, 2, 3, 4})).ok());
  }

  ProgramResult Warpcall(const std::string& arguments) {
    return RunProgram(absl::StrCat("WARPCALL_SERVER=", server_.address(), " '",
                                   ProgramPath("warpcall"), "' ", arguments));
  }

  v1::ProfileRequest seen() {
    absl::MutexLock lock(&mutex_);
    return seen_;
  }
  void Answer(warpcall::testing::ProfileHandler answer) {
    absl::MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }

  const TempFolder folder_;
  const std::string x_ = folder_.Path("x.npy");
  absl::Mutex mutex_;
  v1::ProfileRequest seen_ ABSL_GUARDED_BY(mutex_);
  warpcall::testing::ProfileHandler answer_ ABSL_GUARDED_BY(mutex_);
  FakeServer server_;
};

std::string Load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(ProfileCliTest, SendsFilesAndPrintsWhatTheDeviceAndTheHostDid) {
  const auto run = Warpcall(absl::StrCat("profile gelu --input ", x_,
                                         " --implementation cuda --device cuda:0 --iterations 3"
                                         " --attribute axis=0"));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  const v1::ExecuteRequest call = seen().request();
  EXPECT_EQ(call.kernel(), "gelu");
  EXPECT_EQ(call.implementation(), "cuda");
  EXPECT_EQ(call.device(), "cuda:0");
  EXPECT_EQ(call.attributes().at("axis").int_value(), 0);
  ASSERT_EQ(call.inputs_size(), 1);
  EXPECT_EQ(call.inputs(0).data().size(), 16u);
  EXPECT_EQ(seen().iterations(), 3);
  EXPECT_EQ(seen().input_specs_size(), 0);
  EXPECT_FALSE(seen().trace());
  EXPECT_EQ(run.out,
            "gelu on cuda:0 by subwarp_per_row, 3 iterations\n"
            "\n"
            "NAME                                  KIND    CALLS    TOTAL     MEAN  SHARE  REGS"
            "      SMEM     GRID    BLOCK  ACHIEVED OCC   SM %  DRAM %\n"
            "void warpcall::so...nds, long, long)  kernel      3  60.0 us  20.0 us  60.0%    40"
            "  2.00 KiB  128,1,1  256,1,1         50.0%  25.0%   92.5%\n"
            "copy in                               copy        3  30.0 us  10.0 us  30.0%     -"
            "         -        -        -             -      -       -\n"
            "idle                                  gap         3  10.0 us  3.33 us  10.0%     -"
            "         -        -        -             -      -       -\n"
            "\n"
            "HOST PHASE  CALLS    TOTAL     MEAN\n"
            "parse           3  90.0 us  30.0 us\n");
}

TEST_F(ProfileCliTest, OnlyTheTenLongestRowsAreShown) {
  Answer([](const v1::ProfileRequest&, v1::ProfileResponse* response) {
    for (int i = 1; i <= 13; ++i) AddRow(absl::StrCat("kernel_", i), "kernel", i * 1000, response);
    return FakeAnswer{};
  });
  auto run = Warpcall("profile gelu --shape 8");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("kernel_13"));
  EXPECT_THAT(run.out, HasSubstr("kernel_4 "));
  EXPECT_THAT(run.out, Not(HasSubstr("kernel_3 ")));
  EXPECT_THAT(run.out, HasSubstr("\n3 more (all: --json)\n"));
  run = Warpcall("profile gelu --shape 8 --json");
  EXPECT_EQ(json::parse(run.out)["rows"].size(), 13u);
}

TEST_F(ProfileCliTest, SaysWhyThereAreNoCounters) {
  Answer([](const v1::ProfileRequest& request, v1::ProfileResponse* response) {
    response->set_counters_unavailable("the driver gives them to administrators only");
    return FourRows(request, response);
  });
  const auto run = Warpcall("profile gelu --shape 8");
  EXPECT_THAT(run.out, HasSubstr("no counters (ACHIEVED OCC, SM %, DRAM %): the driver gives them "
                                 "to administrators only\n"));
}

TEST_F(ProfileCliTest, JsonHasEveryRowInFull) {
  const auto run = Warpcall("profile gelu --shape 8 --json");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const json value = json::parse(run.out);
  EXPECT_EQ(value["kernel"], "gelu");
  EXPECT_EQ(value["implementation"], "subwarp_per_row");
  EXPECT_EQ(value["device"], "cuda:0");
  EXPECT_EQ(value["iterations"], 3);
  EXPECT_EQ(value["counters_unavailable"], "");
  ASSERT_EQ(value["rows"].size(), 4u);
  EXPECT_EQ(value["rows"][0]["kind"], "host");
  EXPECT_EQ(value["rows"][0]["fraction"], nullptr);
  const json& kernel = value["rows"][1];
  EXPECT_EQ(kernel["name"], kLongName);
  EXPECT_EQ(kernel["calls"], 3);
  EXPECT_EQ(kernel["total_ns"], 60'000);
  EXPECT_EQ(kernel["mean_ns"], 20'000);
  EXPECT_EQ(kernel["fraction"], 0.6);
  EXPECT_EQ(kernel["registers_per_thread"], 40);
  EXPECT_EQ(kernel["shared_memory_bytes"], 2048);
  EXPECT_EQ(kernel["grid"], "128,1,1");
  EXPECT_EQ(kernel["block"], "256,1,1");
  EXPECT_EQ(kernel["achieved_occupancy"], 0.5);
  EXPECT_EQ(kernel["sm_throughput"], 0.25);
  EXPECT_EQ(kernel["dram_throughput"], 0.925);
  EXPECT_EQ(value["rows"][2]["bytes"], 1 << 20);
  EXPECT_EQ(value["rows"][2]["achieved_occupancy"], nullptr);
}

TEST_F(ProfileCliTest, RandomInputsAreTheServersToMake) {
  ASSERT_EQ(Warpcall("profile gelu --shape 64x3 --type bf16 --seed 5").exit_status, 0);
  EXPECT_EQ(seen().request().inputs_size(), 0);
  ASSERT_EQ(seen().input_specs_size(), 1);
  EXPECT_EQ(seen().input_specs(0).data_type(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_THAT(seen().input_specs(0).shape(), ElementsAre(64, 3));
  EXPECT_EQ(seen().seed(), 5u);
  EXPECT_FALSE(seen().request_path());
  // Far more than any memory has, and nothing for this machine.
  ASSERT_EQ(Warpcall("profile gelu --shape 1048576x1048576 --request").exit_status, 0);
  EXPECT_EQ(seen().input_specs(0).data_type(), v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(seen().seed(), 1u);
  EXPECT_TRUE(seen().request_path());
}

TEST_F(ProfileCliTest, MatricesComeFromMnk) {
  server_.AnswerListKernels([](v1::ListKernelsResponse* response) {
    v1::KernelInfo* kernel = response->add_kernels();
    kernel->set_name("matmul");
    kernel->add_input_names("a");
    kernel->add_input_names("b");
    return absl::OkStatus();
  });
  ASSERT_EQ(Warpcall("profile matmul --shape 2x3x4").exit_status, 0);
  ASSERT_EQ(seen().input_specs_size(), 2);
  EXPECT_THAT(seen().input_specs(0).shape(), ElementsAre(2, 4));
  EXPECT_THAT(seen().input_specs(1).shape(), ElementsAre(4, 3));
}

TEST_F(ProfileCliTest, WritesTheTraceAndSaysHowToOpenIt) {
  const std::string trace = folder_.Path("trace.json");
  std::ofstream(trace) << std::string(1000, 'x');
  auto run = Warpcall(absl::StrCat("profile gelu --shape 8 --trace ", trace));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_TRUE(seen().trace());
  EXPECT_EQ(Load(trace), kTrace);
  EXPECT_THAT(run.err, HasSubstr(absl::StrCat("in ", trace)));
  EXPECT_THAT(run.err, HasSubstr("https://ui.perfetto.dev"));
  run = Warpcall(absl::StrCat("profile gelu --shape 8 --json --trace ", trace));
  EXPECT_TRUE(json::accept(run.out));
}

TEST_F(ProfileCliTest, AnAnswerWithoutTheTraceIsStatusOne) {
  Answer([](const v1::ProfileRequest&, v1::ProfileResponse*) { return FakeAnswer{}; });
  const auto run =
      Warpcall(absl::StrCat("profile gelu --shape 8 --trace ", folder_.Path("trace.json")));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("the server sent no trace"));
}

TEST_F(ProfileCliTest, ARefusalLeavesTheFolderAsItWas) {
  Answer([](const v1::ProfileRequest&, v1::ProfileResponse*) {
    return FakeAnswer{absl::ResourceExhaustedError("too much"), std::nullopt};
  });
  const TempFolder folder;
  EXPECT_EQ(Warpcall(absl::StrCat("profile gelu --shape 8 --trace ", folder.Path("t"))).exit_status,
            1);
  EXPECT_THAT(folder.Names(), IsEmpty());
  std::ofstream(folder.Path("t")) << "of yesterday";
  EXPECT_EQ(Warpcall(absl::StrCat("profile gelu --shape 8 --trace ", folder.Path("t"))).exit_status,
            1);
  EXPECT_EQ(Load(folder.Path("t")), "of yesterday");
  EXPECT_THAT(folder.Names(), ElementsAre("t"));
}

TEST_F(ProfileCliTest, TheServersRefusalIsStatusOneWithItsMessage) {
  Answer([](const v1::ProfileRequest&, v1::ProfileResponse*) {
    return FakeAnswer{absl::InvalidArgumentError("iterations is 5000; at most 100"), std::nullopt};
  });
  const auto run = Warpcall("profile gelu --shape 8");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err, "INVALID_ARGUMENT: iterations is 5000; at most 100\n");
}

TEST_F(ProfileCliTest, UsageErrorsAreStatusTwo) {
  const std::string in = absl::StrCat(" --input ", x_);
  const std::pair<std::string, std::string> kLines[] = {
      {"profile", "required"},
      {"profile gelu", "--input or --shape is required"},
      {absl::StrCat("profile gelu --shape 8", in), "--shape"},
      {"profile gelu --shape '{8,9}'", "has 2 points; profile takes one"},
      {"profile gelu --shape 8x", "a dimension is"},
      {"profile gelu --shape 8,9", "gelu takes 1 inputs"},
      {"profile gelu --shape 8 --type f8", "--type"},
      {absl::StrCat("profile gelu --type f16", in), "float32"},
      {absl::StrCat("profile gelu --input ", folder_.Path("none.npy")), "none.npy"},
      {"profile gelu --shape 8 --iterations 0", "--iterations"},
      {"profile gelu --shape 8 --attribute axis=a", "an integer"},
      {absl::StrCat("profile gelu --shape 8 --trace ", folder_.Path("no/trace.json")),
       "no/trace.json"},
  };
  for (const auto& [line, message] : kLines) {
    const auto run = Warpcall(line);
    EXPECT_EQ(run.exit_status, 2) << line;
    EXPECT_EQ(run.out, "") << line;
    EXPECT_THAT(run.err, HasSubstr(message)) << line;
  }
}

}  // namespace
}  // namespace warpcall::cli
