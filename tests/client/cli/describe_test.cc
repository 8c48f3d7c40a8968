// `warpcall describe` as its users have it.
#include <string>

#include "tests/client/cli/cli_fixture.h"

namespace warpcall::cli {
namespace {

// Two files in CUDA and one in PTX, on the fake server's device, which has two multiprocessors.
FakeAnswer Described(const v1::DescribeRequest&, v1::DescribeResponse* response) {
  testing::Merge(R"(
    implementation: "vectorized" family: "cuda" device: "cpu"
    launch { bytes_moved: 2000000 flops: 1000000 theoretical_occupancy: 0.75 waves: 8
             gpu_kernels: 1 }
    registers_per_thread: 32 shared_memory_bytes: 2048 local_memory_bytes: 8 workspace_bytes: 1024
    files { name: "gelu.cu" language: "cuda" text: "__global__\nvoid f();\n" }
    files { name: "gelu.cuh" language: "cuda" text: "// h\n" }
    files { name: "gelu.ptx" language: "ptx" text: ".version 9.0\n" }
    tolerance: "half a unit" chosen_because: "order of preference" grid: "64x1x1"
    block: "256x1x1")",
                 response);
  return {};
}

class DescribeCliTest : public CliTest {
 protected:
  DescribeCliTest() { server_.AnswerDescribe(std::ref(describe_)); }

  Script<v1::DescribeRequest, v1::DescribeResponse> describe_{Described};
};

TEST_F(DescribeCliTest, SendsTheProblemAndPrintsFactsFilesAndAdvice) {
  const auto run = Warpcall(
      "describe gelu --shape 4x8 --type bf16 --implementation cuda --device cuda:0"
      " --attribute axis=0");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(describe_.TakeText(),
            "kernel: \"gelu\" implementation: \"cuda\""
            " inputs { data_type: DATA_TYPE_BFLOAT16 shape: 4 shape: 8 }"
            " attributes { key: \"axis\" value { int_value: 0 } } device: \"cuda:0\"");
  EXPECT_EQ(run.out,
            "gelu on cpu by vectorized\n"
            "\n"
            "FACT            VALUE\n"
            "family          cuda\n"
            "chosen because  order of preference\n"
            "grid            64x1x1 blocks of 256x1x1 threads\n"
            "waves           8.00\n"
            "occupancy       75.0%\n"
            "registers       32 a thread\n"
            "shared memory   2.00 KiB a block\n"
            "local memory    8 B a thread\n"
            "GPU kernels     1\n"
            "workspace       1.00 KiB\n"
            "moves at least  1.91 MiB\n"
            "computes        1000000 FLOP\n"
            "tolerance       half a unit\n"
            "\n"
            "FILE      LANGUAGE  LINES\n"
            "gelu.cu   cuda          2\n"
            "gelu.cuh  cuda          1\n"
            "gelu.ptx  ptx           1\n"
            "print with --source LANGUAGE\n"
            "\n"
            "8 bytes of each thread do not fit into its 32 registers and go through the caches:"
            " spills.\n"
            "Arithmetic intensity is 0.5 FLOP/B. Moving its 1.91 MiB at the 25.0 GB/s that a copy"
            " was measured to reach takes 80.0 us.\n");
}

TEST_F(DescribeCliTest, OnACpuThereIsNoGrid) {
  describe_.Set([](const v1::DescribeRequest&, v1::DescribeResponse* response) {
    testing::Merge(R"(implementation: "simd" family: "cpu" device: "cpu" tolerance: "none")",
                   response);
    return FakeAnswer{};
  });
  EXPECT_EQ(Warpcall("describe gelu --shape 4").out,
            "gelu on cpu by simd\n"
            "\n"
            "FACT            VALUE\n"
            "family          cpu\n"
            "chosen because\n"
            "workspace       0 B\n"
            "moves at least  0 B\n"
            "computes        0 FLOP\n"
            "tolerance       none\n");
}

TEST_F(DescribeCliTest, SourcePrintsTheFilesOfALanguage) {
  EXPECT_EQ(Warpcall("describe gelu --shape 4 --source ptx").out, ".version 9.0\n");
  EXPECT_EQ(Warpcall("describe gelu --shape 4 --source cuda").out,
            "==> gelu.cu <==\n__global__\nvoid f();\n\n==> gelu.cuh <==\n// h\n");
  ExpectRefused("describe gelu --shape 4 --source sass",
                "NOT_FOUND: vectorized has no files in sass; it has: cuda, ptx\n");
}

TEST_F(DescribeCliTest, AServersTextMakesNoLinesButItsSources) {
  describe_.Set([](const v1::DescribeRequest&, v1::DescribeResponse* response) {
    testing::Merge(R"(implementation: "simd\nOK: fine" family: "cpu" device: "cpu"
      files { name: "a\nb" language: "cpp" text: "one\n\ttwo\033[1m\n" }
      files { name: "c" language: "cpp" text: "three\n" })",
                   response);
    return FakeAnswer{};
  });
  EXPECT_THAT(Warpcall("describe gelu --shape 4").out,
              ::testing::StartsWith("gelu on cpu by simd\\x0aOK: fine\n\nFACT"));
  EXPECT_EQ(Warpcall("describe gelu --shape 4 --source cpp").out,
            "==> a\\x0ab <==\none\n\ttwo\\x1b[1m\n\n==> c <==\nthree\n");
}

TEST_F(DescribeCliTest, JsonHasEverything) {
  json value = WarpcallJson("describe gelu --shape 4");
  const json advice = std::exchange(value["advice"], nullptr);
  EXPECT_EQ(value, json::parse(R"({
    "kernel": "gelu", "implementation": "vectorized", "family": "cuda", "device": "cpu",
    "launch": {"bytes_moved": 2000000, "flops": 1000000, "theoretical_occupancy": 0.75,
               "waves": 8.0, "gpu_kernels": 1, "variant": ""},
    "grid": "64x1x1", "block": "256x1x1", "registers_per_thread": 32,
    "shared_memory_bytes": 2048, "local_memory_bytes": 8, "workspace_bytes": 1024,
    "files": [{"name": "gelu.cu", "language": "cuda", "text": "__global__\nvoid f();\n"},
              {"name": "gelu.cuh", "language": "cuda", "text": "// h\n"},
              {"name": "gelu.ptx", "language": "ptx", "text": ".version 9.0\n"}],
    "tolerance": "half a unit", "chosen_because": "order of preference", "advice": null})"));
  ASSERT_EQ(advice.size(), 2u);
  EXPECT_THAT(advice[0].get<std::string>(), ::testing::HasSubstr("32 registers"));
}

TEST_F(DescribeCliTest, RefusalsAndUsage) {
  describe_.Refuse(absl::UnimplementedError("no implementation of gelu takes it: simd: too odd"));
  ExpectRefused("describe gelu --shape 4",
                "UNIMPLEMENTED: no implementation of gelu takes it: simd: too odd\n");
  ExpectUsageErrors({{"describe gelu", "--shape is required"},
                     {"describe --shape 4", "kernel is required"},
                     {"describe gelu --shape '{8,9}'", "has 2 points; only one is taken here"},
                     {"describe gelu --shape 4 --type f64", "f64"},
                     {"describe gelu --shape 4 --source java", "java"},
                     {"describe gelu --shape 4 --json --source ptx", "both want stdout"}});
  ExpectUnavailable({"describe gelu --shape 4 --deadline 1"});
}

}  // namespace
}  // namespace warpcall::cli
