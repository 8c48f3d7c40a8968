// `warpcall` run, kernels, devices and health, and the common behaviour of all its commands.
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/cli/cli_fixture.h"

namespace warpcall::cli {
namespace {

using client::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RunCliTest : public CliTest {
 protected:
  const std::string y_ = folder_.Path("y.npy");
};

TEST_F(RunCliTest, RunWritesTheOutputAndReports) {
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
  EXPECT_THAT(y->ToFloats(), ElementsAre(1, 2, 3, 4));
}

TEST_F(RunCliTest, JsonWorksBeforeAndAfterTheSubcommand) {
  const std::string line = absl::StrCat("run gelu --input ", x_, " --output ", y_);
  EXPECT_TRUE(json::accept(Warpcall("--json " + line).out));
  json result = WarpcallJson(line);
  EXPECT_GT(std::exchange(result["wall_ns"], nullptr), 0);
  json expected = json::parse(R"({
    "kernel": "gelu", "implementation": "chosen", "device": "cpu", "request_id": "",
    "attempts": 1, "stripes": 1, "wall_ns": null,
    "timing": {"queue_ns": 1, "copy_in_ns": 2, "h2d_ns": 3, "kernel_ns": 4000, "d2h_ns": 5,
               "total_ns": 6000},
    "launch": {"bytes_moved": 8000, "flops": 400, "theoretical_occupancy": 0.75, "waves": 1.5,
               "gpu_kernels": 1, "variant": ""},
    "resident_bytes": 0, "kernel_bytes_per_second": 2e9, "kernel_flops_per_second": 1e8,
    "outputs": [{"data_type": "float32", "shape": [2, 2], "bytes": 16}]})");
  expected["outputs"][0]["file"] = y_;
  EXPECT_EQ(result, expected);
}

TEST_F(RunCliTest, ServerOptionWorksBeforeAndAfterAndBeatsTheEnvironment) {
  for (const std::string& arguments : {absl::StrCat("--server ", server_.address(), " health"),
                                       absl::StrCat("health --server ", server_.address())}) {
    const auto health = RunProgram(absl::StrCat("WARPCALL_SERVER=unix:/nowhere '",
                                                testing::ProgramPath("warpcall"), "' ", arguments));
    EXPECT_EQ(health.exit_status, 0) << health.err;
  }
}

TEST_F(RunCliTest, AttributesTakeTheTypesOfTheKernel) {
  const auto run = Warpcall(absl::StrCat("run gelu --input ", x_,
                                         " --attribute axis=-1 --attribute transpose=true",
                                         " --attribute scale=2 --attribute approximate=none"));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(execute_.TakeText(),
              HasSubstr(" attributes { key: \"approximate\" value { string_value: \"none\" } }"
                        " attributes { key: \"axis\" value { int_value: -1 } }"
                        " attributes { key: \"scale\" value { double_value: 2 } }"
                        " attributes { key: \"transpose\" value { bool_value: true } }"));
}

TEST_F(RunCliTest, FusedTakesAnExpressionAndItsInputs) {
  const auto run =
      Warpcall(absl::StrCat("fused 'gelu(x0 + x1)' --seed -3 --input ", x_, " --input ", x_));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("fused on "));
  const std::string request = execute_.TakeText();
  EXPECT_THAT(request, HasSubstr("kernel: \"fused\""));
  EXPECT_THAT(
      request,
      HasSubstr(" attributes { key: \"expression\" value { string_value: \"gelu(x0 + x1)\" } }"
                " attributes { key: \"seed\" value { int_value: -3 } }"));
  EXPECT_EQ(Warpcall(absl::StrCat("fused --input ", x_, " '(-x0)'")).exit_status, 0);
  EXPECT_THAT(execute_.TakeText(), HasSubstr("string_value: \"(-x0)\""));
}

TEST_F(RunCliTest, LargeCallsGoOverConnectionsInStripes) {
  server_.AnswerListKernels([](v1::ListKernelsResponse* response) {
    v1::KernelInfo* kernel = response->add_kernels();
    kernel->set_name("gelu");
    kernel->set_independence(v1::INDEPENDENCE_ELEMENTS);
    return absl::OkStatus();
  });
  const std::vector<float> values(3 << 18);
  ASSERT_TRUE(client::WriteNpy(x_, Tensor::FromFloats({3, 1 << 18}, values)).ok());
  const std::string line = absl::StrCat("run gelu --input ", x_);
  const json striped = WarpcallJson(line + " --connections 3");
  EXPECT_EQ(striped["stripes"], 3);
  EXPECT_EQ(striped["outputs"][0]["shape"], json({3, 1 << 18}));
  EXPECT_EQ(server_.executes(), 3);
  EXPECT_EQ(WarpcallJson(line)["stripes"], 1);
  EXPECT_THAT(Warpcall(line + " --connections 3").out, HasSubstr("STRIPES"));
}

TEST_F(RunCliTest, StreamSendsTheInputsInChunks) {
  server_.AnswerExecuteStream(testing::EchoStream);
  const auto run = Warpcall(absl::StrCat("run gelu --stream --input ", x_, " --output ", y_));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("by chosen"));
  EXPECT_THAT(client::ReadNpy(y_)->ToFloats(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(server_.executes(), 0);
  EXPECT_EQ(server_.execute_streams(), 1);
}

TEST_F(RunCliTest, BFloat16ComesFromUint16) {
  const std::string bf = folder_.Path("bf.npy");
  ASSERT_TRUE(client::WriteNpy(bf, Tensor::Borrow(DataType::kBFloat16, {2}, {"abcd", 4})).ok());
  const auto run = Warpcall(absl::StrCat("run gelu --type bf16 --input ", bf, " --output ", y_));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(execute_.TakeText(),
              HasSubstr("inputs { data_type: DATA_TYPE_BFLOAT16 shape: 2 data: \"abcd\" }"));
  EXPECT_EQ(client::ReadNpy(y_)->data_type(), DataType::kBFloat16);
}

TEST_F(RunCliTest, TheServersRefusalIsStatusOneWithItsMessage) {
  execute_.Refuse(absl::InvalidArgumentError("axis 5 is out of range"));
  ExpectRefused(absl::StrCat("run gelu --input ", x_, " --output ", y_),
                "INVALID_ARGUMENT: axis 5 is out of range\n");
  EXPECT_THAT(folder_.Names(), ElementsAre("x.npy"));
}

TEST_F(RunCliTest, AServerThatIsNotThereIsStatusOne) {
  ExpectUnavailable({"kernels --deadline 1", "devices --deadline 1", "health",
                     "bench softmax --shape 8 --deadline 1", "load gelu:8 --deadline 1"});
}

// Each call gets the time that the calls before it left.
TEST_F(RunCliTest, TheDeadlineIsForAllThatACommandAsks) {
  constexpr absl::Duration kEach = absl::Milliseconds(300);
  const auto slowly = [&](absl::string_view text, auto* response) {
    absl::SleepFor(kEach);  // time that the server takes
    testing::Merge(std::string(text), response);
    return absl::OkStatus();
  };
  server_.AnswerListKernels([&](v1::ListKernelsResponse* response) {
    return slowly(R"(kernels { name: "gelu" input_names: "x" })", response);
  });
  server_.AnswerDescribe([&](const v1::DescribeRequest&, v1::DescribeResponse* response) {
    return FakeAnswer{slowly("implementation: 'a' device: 'cpu'", response), std::nullopt};
  });
  server_.AnswerProfile([&](const v1::ProfileRequest&, v1::ProfileResponse* response) {
    return FakeAnswer{slowly("implementation: 'a' device: 'cpu'", response), std::nullopt};
  });
  size_t before = 0;
  for (const auto& [command, calls] :
       {std::pair("run", 2u), {"describe", 3u}, {"profile --implementation a", 4u}}) {
    const std::string line = absl::StrCat(command, " gelu --shape 4 --deadline 9");
    EXPECT_EQ(Warpcall(line).exit_status, 0) << line;
    const std::vector<absl::Duration> timeouts = server_.timeouts();
    ASSERT_GE(timeouts.size(), before + calls) << line;
    absl::Duration most = absl::Seconds(9.2);  // the first call's; gRPC rounds up
    for (size_t i = 0; i < calls; ++i, most -= kEach)
      EXPECT_LT(timeouts[before + i], most) << line << ", call " << i;
    before = timeouts.size();
  }
}

TEST_F(RunCliTest, UsageErrorsAreStatusTwo) {
  std::ofstream(folder_.Path("text.npy")) << "no array";
  const std::string f64 = folder_.Path("f64.npy");
  std::ofstream(f64, std::ios::binary)
      << std::string("\x93NUMPY\x01\0\x3a\0", 10)
      << "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n12345678";
  const std::string in = absl::StrCat(" --input ", x_);
  ExpectUsageErrors({
      {"", "subcommand"},
      {"fly", "subcommand"},
      {"run", "required"},
      {"run gelu", "--input"},
      {"fused x0", "--input"},
      {absl::StrCat("fused", in), "expression"},
      {absl::StrCat("fused x0 --attribute seed=1", in), "--attribute"},
      {"run --input a.npy", "kernel"},
      {absl::StrCat("run gelu", in, " --frobnicate 1"), "frobnicate"},
      {"--token_file /proc/self devices", "--token_file: /proc/self: Is a directory"},
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
      {absl::StrCat("run gelu", in, " --attribute unheard_of=1"),
       "attribute 'unheard_of' of gelu is unknown; available: approximate, axis"},
      {absl::StrCat("run gelu", in, " --attribute =1"), "name=value"},
      {absl::StrCat("run gelu", in, " --attribute axis=1.5"), "an integer"},
      {absl::StrCat("run gelu", in, " --attribute transpose=maybe"), "true or false"},
      {absl::StrCat("run gelu", in, " --attribute scale=big"), "a number"},
      {absl::StrCat("run gelu", in, " --attribute axis=1 --attribute axis=2"), "twice"},
      {absl::StrCat("run gelu", in, " --output ", folder_.Path("no/folder.npy")), "no/folder.npy"},
      {absl::StrCat("run gelu", in, " --output ", y_, " --output ", x_), "2 --output"},
  });
}

TEST_F(RunCliTest, OneKernelIsListedByItsName) {
  server_.AnswerListKernels([](v1::ListKernelsResponse* response) {
    for (const char* const name : {"gelu", "softmax"}) response->add_kernels()->set_name(name);
    return absl::OkStatus();
  });
  const auto run = Warpcall("kernels softmax");
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("softmax("));
  EXPECT_THAT(run.out, Not(HasSubstr("gelu")));
  EXPECT_EQ(WarpcallJson("kernels gelu")["kernels"].size(), 1u);
  const auto unknown = Warpcall("kernels sofmax");
  EXPECT_EQ(unknown.exit_status, 1);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean softmax"));
}

TEST_F(RunCliTest, KernelsAndDevicesAreTablesOrJson) {
  auto run = Warpcall("kernels");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  for (const char* text : {"gelu(x): a kernel", "--attribute approximate=tanh", "float32,bfloat16",
                           "--attribute text=... (required)",
                           "UNAVAILABLE: failed its self-test: crashed with SIGILL"})
    EXPECT_THAT(run.out, HasSubstr(text));
  EXPECT_EQ(WarpcallJson("kernels"), json::parse(R"({"kernels": [{
    "name": "gelu", "summary": "a kernel", "input_names": ["x"],
    "inputs_min": 0,
    "attributes": [
      {"name": "approximate", "summary": "an attribute", "default_value": "tanh",
       "allowed_values": ["tanh", "none"], "required": false},
      {"name": "axis", "summary": "an attribute", "default_value": -1, "allowed_values": [],
       "required": false},
      {"name": "transpose", "summary": "an attribute", "default_value": false,
       "allowed_values": [], "required": false},
      {"name": "scale", "summary": "an attribute", "default_value": 0.5, "allowed_values": [],
       "required": false},
      {"name": "text", "summary": "an attribute", "default_value": "", "allowed_values": [],
       "required": true}],
    "implementations": [
      {"name": "simd_fused", "family": "cpu", "device_kind": "cpu", "summary": "a row",
       "data_types": ["float32", "bfloat16"], "unavailable": "", "variants": []},
      {"name": "failed", "family": "library", "device_kind": "cpu", "summary": "",
       "data_types": [], "unavailable": "failed its self-test: crashed with SIGILL",
       "variants": []}]}]})"));

  run = Warpcall("devices");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("16.0 GiB"));
  EXPECT_THAT(run.out, HasSubstr("25.0 GB/s"));
  EXPECT_EQ(WarpcallJson("devices"), json::parse(R"({"devices": [{
    "name": "cpu", "kind": "cpu", "description": "a processor", "memory_bytes": 17179869184,
    "multiprocessors": 2, "l2_bytes": 2097152, "shared_memory_per_block_bytes": 65536,
    "compute_capability": "9.0", "healthy": true,
    "measured_bandwidth_bytes_per_second": 2.5e10}]})"));
}

TEST_F(RunCliTest, HealthIsAnExitStatus) {
  auto run = Warpcall("health");
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_EQ(run.out, "SERVING\n");
  EXPECT_EQ(WarpcallJson("health"), json({{"status", "SERVING"}}));
  server_.SetServing(false);
  run = Warpcall("health");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_EQ(run.out, "NOT_SERVING\n");
  EXPECT_EQ(run.err, "");
  const json error = {{"code", "UNAVAILABLE"}, {"message", "the server is NOT_SERVING"},
                      {"retryable", true},     {"retry_after_ms", nullptr},
                      {"request_id", nullptr}, {"exit_status", 1}};
  for (const char* const line : {"health --json", "health --json=true", "--json=true health"})
    EXPECT_EQ(json::parse(Warpcall(line).err, nullptr, false)["error"], error) << line;
  EXPECT_EQ(Warpcall("health --service no.such.Service --wait 1h").exit_status, 1);
}

TEST_F(RunCliTest, HealthWaitsForAServerThatStarts) {
  server_.SetServing(false);
  EXPECT_EQ(Warpcall("health --wait 300ms").out, "NOT_SERVING\n");
  std::thread later([this] {
    absl::SleepFor(absl::Milliseconds(300));
    server_.SetServing(true);
  });
  const auto run = Warpcall("health --wait 1m");
  later.join();
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.out, "SERVING\n");
  EXPECT_EQ(Warpcall("health --wait soon").exit_status, 2);
}

// Before minutes are spent on making what no request can carry.
TEST_F(RunCliTest, InputsThatNoMessageHoldsAreNotMade) {
  const auto run = Warpcall("run gelu --shape 70000x70000");
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("0 + 19600000000 bytes or more"), HasSubstr("4294967295"),
                             HasSubstr("--stream")));
}

TEST_F(RunCliTest, HelpAndVersionAreStatusZero) {
  EXPECT_THAT(Warpcall("--help").out, HasSubstr("health"));
  EXPECT_EQ(Warpcall("--help").exit_status, 0);
  EXPECT_EQ(Warpcall("run --help").exit_status, 0);
  EXPECT_EQ(Warpcall("--version").exit_status, 0);
}

TEST_F(RunCliTest, LongWorkReportsProgressOnStderr) {
  const std::string err = folder_.Path("err");
  // It takes until its client has said so.
  execute_.Set([&](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    EXPECT_TRUE(Eventually([&] { return absl::StrContains(ReadFile(err), " s so far"); }));
    return EchoInputs(request, response);
  });
  const auto run = Warpcall(absl::StrCat("run gelu --json --input ", x_), err);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_TRUE(json::accept(run.out));
}

}  // namespace
}  // namespace warpcall::cli
