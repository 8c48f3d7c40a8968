// The command line as its users have it: the real binary, its exit status, what it prints and
// writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/npy.h"
#include "tests/client/fake_server.h"
#include "tests/client/subprocess.h"
#include "tests/client/temp_folder.h"
#include "tests/e2e/eventually.h"
#include "tests/programs.h"

namespace warpcall::cli {
namespace {

using client::Tensor;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using warpcall::testing::Eventually;
using warpcall::testing::FakeAnswer;
using warpcall::testing::FakeServer;
using warpcall::testing::ProgramPath;
using warpcall::testing::ProgramResult;
using warpcall::testing::ReadFile;
using warpcall::testing::RunProgram;

class CliTest : public ::testing::Test {
 protected:
  CliTest()
      : server_([this](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
          absl::MutexLock lock(&mutex_);
          seen_ = request;
          return answer_ == nullptr ? warpcall::testing::EchoInputs(request, response)
                                    : answer_(request, response);
        }) {
    EXPECT_TRUE(client::WriteNpy(x_, Tensor::FromFloats({2, 2}, {1, 2, 3, 4})).ok());
  }

  ProgramResult Warpcall(const std::string& arguments, const std::string& err_path = "") {
    return RunProgram(absl::StrCat("WARPCALL_SERVER=", server_.address(), " '",
                                   ProgramPath("warpcall"), "' ", arguments),
                      err_path);
  }

  // The request that arrived last.
  v1::ExecuteRequest seen() {
    absl::MutexLock lock(&mutex_);
    return seen_;
  }
  void Answer(warpcall::testing::ExecuteHandler answer) {
    absl::MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }

  const warpcall::testing::TempFolder folder_;
  const std::string x_ = folder_.Path("x.npy");
  const std::string y_ = folder_.Path("y.npy");
  absl::Mutex mutex_;
  v1::ExecuteRequest seen_ ABSL_GUARDED_BY(mutex_);
  warpcall::testing::ExecuteHandler answer_ ABSL_GUARDED_BY(mutex_);
  FakeServer server_;
};

TEST_F(CliTest, RunWritesTheOutputAndReports) {
  const auto run = Warpcall(absl::StrCat("run gelu --input ", x_, " --output ", y_,
                                         " --implementation simd_fused --device cpu"
                                         " --request_id r-7"));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, HasSubstr("gelu on cpu by simd_fused, request r-7"));
  EXPECT_THAT(run.out, HasSubstr("4.00 us"));    // the kernel's time
  EXPECT_THAT(run.out, HasSubstr("2.00 GB/s"));  // 8000 bytes in 4 us
  const auto y = client::ReadNpy(y_);
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(y->shape(), ElementsAre(2, 2));
  EXPECT_THAT(y->Floats().value(), ElementsAre(1, 2, 3, 4));
}

TEST_F(CliTest, JsonWorksBeforeAndAfterTheSubcommand) {
  for (const std::string& line :
       {absl::StrCat("--json run gelu --input ", x_, " --output ", y_),
        absl::StrCat("run gelu --input ", x_, " --output ", y_, " --json")}) {
    const auto run = Warpcall(line);
    ASSERT_EQ(run.exit_status, 0) << run.err;
    const json result = json::parse(run.out);
    EXPECT_EQ(result["kernel"], "gelu");
    EXPECT_EQ(result["implementation"], "chosen");
    EXPECT_EQ(result["timing"]["kernel_ns"], 4000);
    EXPECT_EQ(result["launch"]["flops"], 400);
    EXPECT_EQ(result["kernel_bytes_per_second"], 2e9);
    EXPECT_EQ(result["outputs"][0]["shape"], json({2, 2}));
    EXPECT_EQ(result["outputs"][0]["data_type"], "float32");
    EXPECT_EQ(result["outputs"][0]["file"], y_);
  }
}

TEST_F(CliTest, ServerOptionWorksBeforeAndAfterAndBeatsTheEnvironment) {
  for (const std::string& arguments : {absl::StrCat("--server ", server_.address(), " health"),
                                       absl::StrCat("health --server ", server_.address())}) {
    const auto health = RunProgram(
        absl::StrCat("WARPCALL_SERVER=unix:/nowhere '", ProgramPath("warpcall"), "' ", arguments));
    EXPECT_EQ(health.exit_status, 0) << health.err;
  }
}

TEST_F(CliTest, AttributesTakeTheTypesOfTheKernel) {
  const auto run = Warpcall(
      absl::StrCat("run gelu --input ", x_, " --attribute axis=-1 --attribute transpose=true",
                   " --attribute scale=2 --attribute approximate=none --attribute unheard_of=1"));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const auto attributes = seen().attributes();
  EXPECT_EQ(attributes.at("axis").int_value(), -1);
  EXPECT_TRUE(attributes.at("transpose").bool_value());
  EXPECT_EQ(attributes.at("scale").double_value(), 2.0);
  EXPECT_EQ(attributes.at("approximate").string_value(), "none");
  EXPECT_EQ(attributes.at("unheard_of").string_value(), "1");
}

TEST_F(CliTest, LargeCallsGoOverConnectionsInStripes) {
  server_.AnswerListKernels([](v1::ListKernelsResponse* response) {
    v1::KernelInfo* kernel = response->add_kernels();
    kernel->set_name("gelu");
    kernel->set_independence(v1::INDEPENDENCE_ELEMENTS);
    return absl::OkStatus();
  });
  const std::vector<float> values(3 << 18);
  ASSERT_TRUE(client::WriteNpy(x_, Tensor::FromFloats({3, 1 << 18}, values)).ok());
  auto run = Warpcall(absl::StrCat("run gelu --json --connections 3 --input ", x_));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(json::parse(run.out)["stripes"], 3);
  EXPECT_EQ(json::parse(run.out)["outputs"][0]["shape"], json({3, 1 << 18}));
  EXPECT_EQ(server_.executes(), 3);
  run = Warpcall(absl::StrCat("run gelu --json --input ", x_));
  EXPECT_EQ(json::parse(run.out)["stripes"], 1);
  run = Warpcall(absl::StrCat("run gelu --connections 3 --input ", x_));
  EXPECT_THAT(run.out, HasSubstr("STRIPES"));
}

TEST_F(CliTest, StreamSendsTheInputsInChunks) {
  server_.AnswerExecuteStream([](warpcall::testing::ServerStream* stream) {
    v1::ExecuteStreamRequest request;
    v1::ExecuteStreamResponse header, done;
    stream->Read(&request);
    *header.mutable_header()->mutable_outputs() = request.header().inputs();
    stream->Write(header);
    while (stream->Read(&request)) {
      v1::ExecuteStreamResponse chunk;
      *chunk.mutable_chunk() = request.chunk();
      stream->Write(chunk);
    }
    done.mutable_done()->set_implementation("streamed");
    stream->Write(done);
    return absl::OkStatus();
  });
  const auto run = Warpcall(absl::StrCat("run gelu --stream --input ", x_, " --output ", y_));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("by streamed"));
  EXPECT_THAT(client::ReadNpy(y_)->Floats().value(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(server_.executes(), 0);
  EXPECT_EQ(server_.execute_streams(), 1);
}

TEST_F(CliTest, BFloat16ComesFromUint16) {
  const std::string bf = folder_.Path("bf.npy");
  ASSERT_TRUE(client::WriteNpy(bf, Tensor::Borrow(DataType::kBFloat16, {2}, {"abcd", 4})).ok());
  const auto run = Warpcall(absl::StrCat("run gelu --type bf16 --input ", bf, " --output ", y_));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(seen().inputs(0).data_type(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(seen().inputs(0).data(), "abcd");
  EXPECT_EQ(client::ReadNpy(y_, {.uint16_is_bfloat16 = true})->data_type(), DataType::kBFloat16);
}

TEST_F(CliTest, TheServersRefusalIsStatusOneWithItsMessage) {
  Answer([](const v1::ExecuteRequest&, v1::ExecuteResponse*) -> FakeAnswer {
    return {absl::InvalidArgumentError("axis 5 is out of range"), std::nullopt};
  });
  const auto run = Warpcall(absl::StrCat("run gelu --input ", x_, " --output ", y_));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err, "INVALID_ARGUMENT: axis 5 is out of range\n");
  EXPECT_FALSE(std::ifstream(y_).good());
}

TEST_F(CliTest, AServerThatIsNotThereIsStatusOne) {
  server_.Stop();
  for (const char* command : {"kernels --deadline 1", "devices --deadline 1", "health"}) {
    const auto run = Warpcall(command);
    EXPECT_EQ(run.exit_status, 1) << command;
    EXPECT_THAT(run.err,
                ::testing::AnyOf(StartsWith("UNAVAILABLE: "), StartsWith("DEADLINE_EXCEEDED: ")));
  }
}

TEST_F(CliTest, UsageErrorsAreStatusTwo) {
  std::ofstream(folder_.Path("text.npy")) << "no array";
  const std::string f64 = folder_.Path("f64.npy");
  std::ofstream(f64, std::ios::binary)
      << std::string("\x93NUMPY\x01\0\x3a\0", 10)
      << "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n12345678";
  const std::string in = absl::StrCat(" --input ", x_);
  const std::pair<std::string, std::string> kLines[] = {
      {"", "subcommand"},
      {"fly", "subcommand"},
      {"run", "required"},
      {"run gelu", "--input"},
      {"run --input a.npy", "kernel"},
      {absl::StrCat("run gelu", in, " --frobnicate 1"), "frobnicate"},
      {absl::StrCat("run gelu", in, " --deadline 0"), "--deadline"},
      {absl::StrCat("run gelu", in, " --deadline soon"), "--deadline"},
      {absl::StrCat("run gelu", in, " --connections 0"), "--connections"},
      {absl::StrCat("run gelu", in, " --connections 65"), "--connections"},
      {absl::StrCat("run gelu", in, " --connections 2 --stream"), "--stream"},
      {absl::StrCat("run gelu", in, " --type f64"), "--type"},
      {absl::StrCat("run gelu", in, " --type bf16"), "float32"},
      {absl::StrCat("run gelu --input ", folder_.Path("none.npy")), "none.npy"},
      {absl::StrCat("run gelu --input ", folder_.Path("text.npy")), "not a .npy file"},
      {absl::StrCat("run gelu --input ", f64), "'<f8'"},
      {absl::StrCat("run gelu", in, " --attribute axis"), "name=value"},
      {absl::StrCat("run gelu", in, " --attribute =1"), "name=value"},
      {absl::StrCat("run gelu", in, " --attribute axis=1.5"), "an integer"},
      {absl::StrCat("run gelu", in, " --attribute transpose=maybe"), "true or false"},
      {absl::StrCat("run gelu", in, " --attribute scale=big"), "a number"},
      {absl::StrCat("run gelu", in, " --attribute axis=1 --attribute axis=2"), "twice"},
      {absl::StrCat("run gelu", in, " --output ", folder_.Path("no/folder.npy")), "no/folder.npy"},
      {absl::StrCat("run gelu", in, " --output ", y_, " --output ", x_), "2 --output"},
  };
  for (const auto& [line, message] : kLines) {
    const auto run = Warpcall(line);
    EXPECT_EQ(run.exit_status, 2) << line;
    EXPECT_EQ(run.out, "") << line;
    EXPECT_THAT(run.err, HasSubstr(message)) << line;
  }
}

TEST_F(CliTest, KernelsAndDevicesAreTablesOrJson) {
  auto run = Warpcall("kernels");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("gelu(x): a kernel"));
  EXPECT_THAT(run.out, HasSubstr("--attribute approximate=tanh"));
  EXPECT_THAT(run.out, HasSubstr("float32,bfloat16"));
  EXPECT_THAT(run.out, HasSubstr("UNAVAILABLE: failed its self-test: crashed with SIGILL"));
  run = Warpcall("kernels --json");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  json listed = json::parse(run.out);
  EXPECT_EQ(listed["kernels"][0]["attributes"][1]["default_value"], -1);
  EXPECT_EQ(listed["kernels"][0]["implementations"][0]["name"], "simd_fused");
  EXPECT_EQ(listed["kernels"][0]["implementations"][0]["unavailable"], "");
  EXPECT_EQ(listed["kernels"][0]["implementations"][1]["unavailable"],
            "failed its self-test: crashed with SIGILL");

  run = Warpcall("devices");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("16.0 GiB"));
  EXPECT_THAT(run.out, HasSubstr("25.0 GB/s"));
  run = Warpcall("devices --json");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  listed = json::parse(run.out);
  EXPECT_EQ(listed["devices"][0]["memory_bytes"], int64_t{16} << 30);
  EXPECT_EQ(listed["devices"][0]["healthy"], true);
}

TEST_F(CliTest, HealthIsAnExitStatus) {
  auto run = Warpcall("health");
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_EQ(run.out, "SERVING\n");
  run = Warpcall("health --json");
  EXPECT_EQ(json::parse(run.out)["status"], "SERVING");
  server_.SetServing(false);
  run = Warpcall("health");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_EQ(run.out, "NOT_SERVING\n");
  EXPECT_EQ(Warpcall("health --service no.such.Service").exit_status, 1);
}

TEST_F(CliTest, HelpAndVersionAreStatusZero) {
  EXPECT_THAT(Warpcall("--help").out, HasSubstr("health"));
  EXPECT_EQ(Warpcall("--help").exit_status, 0);
  EXPECT_EQ(Warpcall("run --help").exit_status, 0);
  EXPECT_EQ(Warpcall("--version").exit_status, 0);
}

TEST_F(CliTest, LongWorkReportsProgressOnStderr) {
  const std::string err = folder_.Path("err");
  // It takes until its client has said so.
  Answer([&](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    EXPECT_TRUE(Eventually([&] { return absl::StrContains(ReadFile(err), " s so far"); }));
    return warpcall::testing::EchoInputs(request, response);
  });
  const auto run = Warpcall(absl::StrCat("run gelu --json --input ", x_), err);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_TRUE(json::accept(run.out));
}

}  // namespace
}  // namespace warpcall::cli
