#include "client/cli/load/mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace warpcall::cli {
namespace {

using ::testing::HasSubstr;

std::vector<LoadEntry> Parse(absl::string_view mix, const LoadEntry& defaults = {}) {
  const auto entries = ParseMix(mix, defaults);
  EXPECT_TRUE(entries.ok()) << entries.status();
  return entries.ok() ? *entries : std::vector<LoadEntry>();
}

TEST(ParseMixTest, EntriesHaveShapesTypesAndWeights) {
  const auto entries = Parse("gelu:4096=80,softmax:64x1024:bf16=15,matmul:f16:2x3*3x4=0.5");
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].kernel, "gelu");
  EXPECT_EQ(entries[0].shapes, Shapes({{4096}}));
  EXPECT_EQ(entries[0].data_type, DataType::kFloat32);
  EXPECT_EQ(entries[0].weight, 80);
  EXPECT_EQ(entries[1].shapes, Shapes({{64, 1024}}));
  EXPECT_EQ(entries[1].data_type, DataType::kBFloat16);
  EXPECT_EQ(entries[2].shapes, Shapes({{2, 3}, {3, 4}}));
  EXPECT_EQ(entries[2].data_type, DataType::kFloat16);
  EXPECT_EQ(entries[2].weight, 0.5);
}

TEST(ParseMixTest, WhatAnEntryDoesNotSayIsTheDefault) {
  const LoadEntry defaults = {.implementation = "cpu",
                              .device = "cuda:1",
                              .attributes = {"approximate=none", "axis=0"},
                              .shapes = {{7}},
                              .data_type = DataType::kFloat16};
  const auto entries =
      Parse("gelu,softmax[device=cuda:0,axis=1,implementation=manual]:8:bf16", defaults);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(EntryName(entries[0]),
            "gelu[implementation=cpu,device=cuda:1,approximate=none,axis=0]:7:float16");
  EXPECT_EQ(entries[0].weight, 1);
  EXPECT_EQ(EntryName(entries[1]),
            "softmax[implementation=manual,device=cuda:0,axis=1,approximate=none]:8:bfloat16");
}

TEST(ParseMixTest, NamesOfEntriesParseToTheSameEntries) {
  for (const char* name :
       {"gelu:4096:float32", "softmax[axis=-1]:64x1024:bfloat16", "identity:0x4:float16",
        "matmul[device=cuda:0,precision=tf32]:256x256*256x128:float32"}) {
    EXPECT_EQ(EntryName(Parse(name).at(0)), name);
  }
}

TEST(ParseMixTest, ErrorsNameTheEntryTheValueAndTheLimit) {
  std::vector<std::string> many(kMixEntriesMax + 1, "gelu:1");
  const std::pair<std::string, std::vector<std::string>> kMixes[] = {
      {"", {"no kernel"}},
      {"gelu:1,", {"entry ''", "no kernel"}},
      {":4", {"no kernel"}},
      {"gelu", {"entry 'gelu'", "no shape"}},
      {"gelu:4=0", {"entry 'gelu:4=0'", "'0'", "above 0"}},
      {"gelu:4=-1", {"'-1'", "above 0"}},
      {"gelu:4=nan", {"'nan'", "above 0"}},
      {"gelu:4=2e9", {"'2e9'", "at most 1000000000"}},
      {"gelu:4=", {"above 0"}},
      {"gelu:4=1:f32", {"'1:f32'", "above 0"}},
      {"gelu:f64:4", {"'f64'", "float32 (f32, fp32)"}},
      {"gelu:-4", {"'-4'", "neither a shape"}},
      {"gelu:4x", {"'4x'", "dimensions of 0"}},
      {"gelu:4xx4", {"'4xx4'"}},
      {"gelu:4x4*", {"dimensions of 0"}},
      {"gelu:4y4", {"'4y4'"}},
      {"gelu:99999999999999999999", {"'99999999999999999999'", "9223372036854775807"}},
      {"gelu:4:", {"neither a shape"}},
      {"gelu[axis=1:4", {"'[' without ']'"}},
      {"gelu[axis]:4", {"'axis'", "name=value"}},
      {"gelu[=1]:4", {"'=1'", "name=value"}},
      {"gelu[]:4", {"name=value"}},
      {"gelu[axis=1]4", {"'4'", "expected"}},
      {absl::StrJoin(many, ","), {"17 entries", "may be 16"}},
  };
  for (const auto& [mix, parts] : kMixes) {
    const auto entries = ParseMix(mix, {});
    EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument) << mix;
    for (const std::string& part : parts)
      EXPECT_THAT(entries.status().message(), HasSubstr(part)) << mix;
  }
}

TEST(FitToKernelTest, OneShapeServesAllInputs) {
  std::vector<client::KernelInfo> kernels(2);
  kernels[0].name = "gelu";
  kernels[0].input_names = {"x"};
  kernels[1].name = "matmul";
  kernels[1].input_names = {"a", "b"};
  auto entries = Parse("gelu:4,matmul:8x8,matmul:2x3*3x4,unheard_of:1*2*3");
  for (LoadEntry& entry : entries) EXPECT_TRUE(FitToKernel(kernels, &entry).ok());
  EXPECT_EQ(entries[0].shapes, Shapes({{4}}));
  EXPECT_EQ(entries[1].shapes, Shapes({{8, 8}, {8, 8}}));
  EXPECT_EQ(entries[2].shapes, Shapes({{2, 3}, {3, 4}}));
  EXPECT_EQ(entries[3].shapes, Shapes({{1}, {2}, {3}}));

  kernels.emplace_back();
  kernels[2].name = "fused";
  kernels[2].input_names = {"x0", "x1", "x2"};
  kernels[2].inputs_min = 1;
  for (const char* const mix : {"fused:8x8", "fused:8x8*8"}) {
    LoadEntry entry = Parse(mix)[0];
    const Shapes given = entry.shapes;
    EXPECT_TRUE(FitToKernel(kernels, &entry).ok());
    EXPECT_EQ(entry.shapes, given);
  }
  kernels.emplace_back();
  kernels[3].name = "rmsnorm";
  kernels[3].input_names = {"x", "weight"};
  kernels[3].input_roles = {client::OperandRole::kSplit, client::OperandRole::kShared};
  LoadEntry row = Parse("rmsnorm:8")[0];
  EXPECT_TRUE(FitToKernel(kernels, &row).ok());
  LoadEntry rows = Parse("rmsnorm:4x8")[0];
  EXPECT_THAT(FitToKernel(kernels, &rows).message(),
              HasSubstr("1 shape, but rmsnorm takes 2: x, weight, with * between them"));
  LoadEntry wrong = Parse("matmul:1*2*3")[0];
  const absl::Status status = FitToKernel(kernels, &wrong);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("3 shapes, but matmul takes 2: a, b"));
}

TEST(FitToKernelTest, RequestsOverTheMessageLimitAreRefused) {
  // 4 GiB less four bytes, and with one more element of an input.
  LoadEntry fits = Parse("gelu:1073741823")[0];
  EXPECT_TRUE(FitToKernel({}, &fits).ok());
  for (const char* mix : {"gelu:1073741824", "gelu:1073741823*1", "gelu:65536x65536:bf16"}) {
    LoadEntry entry = Parse(mix)[0];
    const absl::Status status = FitToKernel({}, &entry);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << mix;
    EXPECT_THAT(status.message(), HasSubstr("at most 4294967295")) << mix;
  }
  LoadEntry overflows = Parse("gelu:9223372036854775807x2")[0];
  EXPECT_THAT(FitToKernel({}, &overflows).message(), HasSubstr("more bytes than an int64"));
}

TEST(ParseShapesTest, EmptyTensorsAreShapesToo) {
  EXPECT_EQ(ParseShapes("0x4*3x0").value(), Shapes({{0, 4}, {3, 0}}));
  EXPECT_THAT(ParseShapes("").status().message(), HasSubstr("64x1024"));
}

}  // namespace
}  // namespace warpcall::cli
