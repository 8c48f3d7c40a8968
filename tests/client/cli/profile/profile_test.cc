// `warpcall profile` as its users have it.
#include <fstream>
#include <string>

#include "tests/client/cli/cli_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kLongName[] =
    "void warpcall::softmax::SubwarpPerRow<__nv_bfloat16, 4, 32>(Operands, long, long)";
constexpr char kTrace[] = R"({"traceEvents": []})";

void AddRow(const std::string& name, const std::string& kind, int64_t total_ns,
            v1::ProfileResponse* response) {
  v1::ProfileRow* row = response->add_rows();
  testing::Merge("calls: 3 achieved_occupancy: -1 sm_throughput: -1 dram_throughput: -1", row);
  row->set_name(name);
  row->set_kind(kind);
  row->set_total_ns(total_ns);
  row->set_mean_ns(static_cast<double>(total_ns) / 3);
  row->set_fraction(kind == "host" ? 0 : static_cast<double>(total_ns) / 100'000);
}

// A kernel with all counters, a copy, a gap, a phase of the host.
FakeAnswer FourRows(const v1::ProfileRequest& request, v1::ProfileResponse* response) {
  testing::Merge("implementation: 'subwarp_per_row' device: 'cuda:0' iterations: 3", response);
  AddRow("parse", "host", 90'000, response);
  AddRow(kLongName, "kernel", 60'000, response);
  testing::Merge(R"(registers_per_thread: 40 shared_memory_bytes: 2048 grid: "128,1,1"
                    block: "256,2,1" achieved_occupancy: 0.5 sm_throughput: 0.25
                    dram_throughput: 0.925)",
                 response->mutable_rows(1));
  AddRow("copy in", "copy", 30'000, response);
  response->mutable_rows(2)->set_bytes(1 << 20);
  AddRow("idle", "gap", 10'000, response);
  if (request.trace()) response->set_trace_json(kTrace);
  return {};
}

class ProfileCliTest : public CliTest {
 protected:
  ProfileCliTest() { server_.AnswerProfile(std::ref(profile_)); }

  Script<v1::ProfileRequest, v1::ProfileResponse> profile_{FourRows};
};

TEST_F(ProfileCliTest, SendsFilesAndPrintsWhatTheDeviceAndTheHostDid) {
  const auto run = Warpcall(absl::StrCat("profile gelu --input ", x_,
                                         " --implementation cuda --device cuda:0 --iterations 3"
                                         " --attribute axis=0"));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(profile_.TakeText(),
            "request { kernel: \"gelu\" implementation: \"cuda\""
            " inputs { data_type: DATA_TYPE_FLOAT32 shape: 2 shape: 2"
            " data: \"\\000\\000\\200?\\000\\000\\000@\\000\\000@@\\000\\000\\200@\" }"
            " attributes { key: \"axis\" value { int_value: 0 } } device: \"cuda:0\" }"
            " iterations: 3 seed: 1");
  EXPECT_EQ(run.out,
            "gelu on cuda:0 by subwarp_per_row, 3 iterations\n"
            "\n"
            "NAME                                  KIND    CALLS    TOTAL     MEAN  SHARE  REGS"
            "      SMEM     GRID    BLOCK  ACHIEVED OCC   SM %  DRAM %\n"
            "void warpcall::so...nds, long, long)  kernel      3  60.0 us  20.0 us  60.0%    40"
            "  2.00 KiB  128,1,1  256,2,1         50.0%  25.0%   92.5%\n"
            "copy in                               copy        3  30.0 us  10.0 us  30.0%     -"
            "         -        -        -             -      -       -\n"
            "idle                                  gap         3  10.0 us  3.33 us  10.0%     -"
            "         -        -        -             -      -       -\n"
            "\n"
            "HOST PHASE  CALLS    TOTAL     MEAN\n"
            "parse           3  90.0 us  30.0 us\n");
}

TEST_F(ProfileCliTest, OnlyTheTenLongestRowsAreShown) {
  profile_.Set([](const v1::ProfileRequest&, v1::ProfileResponse* response) {
    for (int i = 1; i <= 13; ++i) AddRow(absl::StrCat("kernel_", i), "kernel", i * 1000, response);
    return FakeAnswer{};
  });
  const auto run = Warpcall("profile gelu --shape 8");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("kernel_13"));
  EXPECT_THAT(run.out, HasSubstr("kernel_4 "));
  EXPECT_THAT(run.out, Not(HasSubstr("kernel_3 ")));
  EXPECT_THAT(run.out, HasSubstr("\n3 more (all: --json)\n"));
  EXPECT_EQ(WarpcallJson("profile gelu --shape 8")["rows"].size(), 13u);
}

TEST_F(ProfileCliTest, SaysWhyThereAreNoCounters) {
  profile_.Set([](const v1::ProfileRequest& request, v1::ProfileResponse* response) {
    response->set_counters_unavailable("the driver gives them to administrators only");
    return FourRows(request, response);
  });
  const auto run = Warpcall("profile gelu --shape 8");
  EXPECT_THAT(run.out, HasSubstr("no counters (ACHIEVED OCC, SM %, DRAM %): the driver gives them "
                                 "to administrators only\n"));
}

TEST_F(ProfileCliTest, CsvHasALineForEachRow) {
  const std::string path = folder_.Path("profile.csv");
  const auto run = Warpcall("profile gelu --shape 8 --csv -");
  EXPECT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = Lines(run.out);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0],
            "kernel,implementation,device,name,kind,calls,total_ns,mean_ns,fraction,"
            "registers_per_thread,shared_memory_bytes,grid,block,achieved_occupancy,sm_throughput,"
            "dram_throughput,bytes");
  EXPECT_EQ(lines[1], "gelu,subwarp_per_row,cuda:0,parse,host,3,90000,30000,,0,0,,,,,,0");
  EXPECT_EQ(lines[2], absl::StrCat("gelu,subwarp_per_row,cuda:0,\"", kLongName,
                                   "\",kernel,3,60000,20000,0.6,40,2048,\"128,1,1\",\"256,2,1\","
                                   "0.5,0.25,0.925,0"));
  const auto table = Warpcall("profile gelu --shape 8 --csv " + path);
  EXPECT_THAT(table.out, HasSubstr("HOST PHASE"));
  EXPECT_EQ(ReadFile(path), run.out);
  ExpectUsageErrors({{"profile gelu --shape 8 --json --csv -", "both want stdout"},
                     {"profile gelu --shape 8 --csv /nowhere/at/all.csv", "/nowhere/at/all.csv"}});
}

TEST_F(ProfileCliTest, JsonHasEveryRowInFull) {
  json value = WarpcallJson("profile gelu --shape 8");
  const json rows = std::exchange(value["rows"], nullptr);
  EXPECT_EQ(value, json::parse(R"({"kernel": "gelu", "implementation": "subwarp_per_row",
    "device": "cuda:0", "iterations": 3, "counters_unavailable": "", "rows": null})"));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["kind"], "host");
  EXPECT_EQ(rows[0]["fraction"], nullptr);
  json kernel = json::parse(R"({"kind": "kernel", "calls": 3, "total_ns": 60000,
    "mean_ns": 20000, "fraction": 0.6, "registers_per_thread": 40, "shared_memory_bytes": 2048,
    "grid": "128,1,1", "block": "256,2,1", "achieved_occupancy": 0.5, "sm_throughput": 0.25,
    "dram_throughput": 0.925, "bytes": 0})");
  kernel["name"] = kLongName;
  EXPECT_EQ(rows[1], kernel);
  EXPECT_EQ(rows[2]["bytes"], 1 << 20);
  EXPECT_EQ(rows[2]["achieved_occupancy"], nullptr);
}

TEST_F(ProfileCliTest, RandomInputsAreTheServersToMake) {
  ASSERT_EQ(Warpcall("profile gelu --shape 64x3 --type bf16 --seed 5").exit_status, 0);
  EXPECT_EQ(profile_.TakeText(),
            "request { kernel: \"gelu\" }"
            " input_specs { data_type: DATA_TYPE_BFLOAT16 shape: 64 shape: 3 } seed: 5");
  // Far more than any memory has, and nothing for this machine.
  ASSERT_EQ(Warpcall("profile gelu --shape 1048576x1048576 --request").exit_status, 0);
  EXPECT_EQ(profile_.TakeText(),
            "request { kernel: \"gelu\" } input_specs { data_type: DATA_TYPE_FLOAT32"
            " shape: 1048576 shape: 1048576 } seed: 1 request_path: true");
}

TEST_F(ProfileCliTest, MatricesComeFromMnk) {
  ListSoftmaxAndMatmul();
  ASSERT_EQ(Warpcall("profile matmul --shape 2x3x4").exit_status, 0);
  EXPECT_THAT(profile_.TakeText(),
              HasSubstr("input_specs { data_type: DATA_TYPE_FLOAT32 shape: 2 shape: 4 }"
                        " input_specs { data_type: DATA_TYPE_FLOAT32 shape: 4 shape: 3 }"));
}

TEST_F(ProfileCliTest, WritesTheTraceAndSaysHowToOpenIt) {
  const std::string trace = folder_.Path("trace.json");
  std::ofstream(trace) << std::string(1000, 'x');
  const auto run = Warpcall(absl::StrCat("profile gelu --shape 8 --trace ", trace));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(profile_.TakeText(), HasSubstr("trace: true"));
  EXPECT_EQ(ReadFile(trace), kTrace);
  EXPECT_THAT(run.err, HasSubstr(absl::StrCat("in ", trace)));
  EXPECT_THAT(run.err, HasSubstr("https://ui.perfetto.dev"));
  WarpcallJson(absl::StrCat("profile gelu --shape 8 --trace ", trace));
}

TEST_F(ProfileCliTest, AnAnswerWithoutTheTraceIsStatusOne) {
  profile_.Set([](const v1::ProfileRequest&, v1::ProfileResponse*) { return FakeAnswer{}; });
  const auto run =
      Warpcall(absl::StrCat("profile gelu --shape 8 --trace ", folder_.Path("trace.json")));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("the server sent no trace"));
}

TEST_F(ProfileCliTest, ARefusalIsStatusOneAndLeavesTheFolderAsItWas) {
  profile_.Refuse(absl::InvalidArgumentError("iterations is 5000; at most 100"));
  const std::string message = "INVALID_ARGUMENT: iterations is 5000; at most 100\n";
  ExpectRefused("profile gelu --shape 8", message);
  const testing::TempFolder folder;
  ExpectRefused(absl::StrCat("profile gelu --shape 8 --trace ", folder.Path("t")), message);
  EXPECT_THAT(folder.Names(), IsEmpty());
  std::ofstream(folder.Path("t")) << "of yesterday";
  ExpectRefused(absl::StrCat("profile gelu --shape 8 --trace ", folder.Path("t")), message);
  EXPECT_EQ(ReadFile(folder.Path("t")), "of yesterday");
  EXPECT_THAT(folder.Names(), ElementsAre("t"));
}

TEST_F(ProfileCliTest, UsageErrorsAreStatusTwo) {
  const std::string in = absl::StrCat(" --input ", x_);
  ExpectUsageErrors({
      {"profile", "required"},
      {"profile gelu", "--input or --shape is required"},
      {absl::StrCat("profile gelu --shape 8", in), "--shape"},
      {"profile gelu --shape '{8,9}'", "has 2 points; only one is taken here"},
      {"profile gelu --shape 8x", "a dimension is"},
      {"profile gelu --shape 8,9", "gelu takes 1 inputs"},
      {"profile gelu --shape 8 --type f8", "--type"},
      {absl::StrCat("profile gelu --type f16", in), "float32"},
      {absl::StrCat("profile gelu --input ", folder_.Path("none.npy")), "none.npy"},
      {"profile gelu --shape 8 --iterations 0", "--iterations"},
      {"profile gelu --shape 8 --attribute axis=a", "an integer"},
      {absl::StrCat("profile gelu --shape 8 --trace ", folder_.Path("no/trace.json")),
       "no/trace.json"},
  });
}

}  // namespace
}  // namespace warpcall::cli
