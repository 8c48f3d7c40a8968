#include "kernels/manifest/kernel_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/fused/fused.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "kernels/softmax/softmax.h"
#include "tests/kernels/manifest_gpu.h"

namespace warpcall::manifest {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSoftmax[] = R"json({
  "name": "my-softmax", "op": "softmax", "types": ["float32", "bfloat16"],
  "attributes": {"axis": -1}, "inputs": "finite", "deterministic": false,
  "code": {"kind": "cuda", "entry": "softmax_kernel<T>", "options": ["-std=c++20", "-DROWS=4"]},
  "args": ["x.ptr", "y.ptr", "scratch.ptr", "rows:i64", "cols:i32", "1.5:f32", "zero:u64",
           "rows - cols:f32"],
  "launch": {"grid": ["ceil(rows / 4)", 1], "block": [128], "shared": "cols * 4"},
  "scratch": "y.bytes + 256", "scratch_zero": true,
  "requires": ["cols % 8 == 0", "cols <= 16384"], "examples": [[[4096, 1024]], [[2, 3, 64]]]
})json";

const Op* FindTestOp(absl::string_view name) {
  for (const Op* op : {&SoftmaxOp(), &MatmulOp(), &LinearOp(), &LayernormOp(), &FusedOp()})
    if (name == op->name) return op;
  return nullptr;
}

KernelManifest Read(const std::string& json) {
  absl::StatusOr<KernelManifest> manifest = ReadKernelManifest(json, FindTestOp);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  return manifest.ok() ? *std::move(manifest) : KernelManifest();
}

std::string Complaint(const Json& json) {
  const absl::Status status = ReadKernelManifest(json.dump(), FindTestOp).status();
  if (!status.ok()) EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

Problem SoftmaxOf(Dims dims, DataType type = DataType::kFloat32, int64_t axis = -1) {
  return *MakeProblem(SoftmaxOp(), {{type, dims}}, {{"axis", axis}});
}

template <typename Value>
Value As(const Parameter& parameter) {
  Value value;
  EXPECT_EQ(parameter.bytes, sizeof(value));
  std::memcpy(&value, &parameter.bits, sizeof(value));
  return value;
}

TEST(KernelManifestTest, IsReadAsItWasWritten) {
  const KernelManifest manifest = Read(kSoftmax);
  EXPECT_EQ(manifest.name, "my-softmax");
  EXPECT_EQ(manifest.op, &SoftmaxOp());
  EXPECT_THAT(manifest.types, ElementsAre(DataType::kFloat32, DataType::kBFloat16));
  EXPECT_TRUE(manifest.finite_inputs);
  EXPECT_FALSE(manifest.deterministic);
  EXPECT_TRUE(manifest.scratch_zero);
  EXPECT_THAT(manifest.options, ElementsAre("-std=c++20", "-DROWS=4"));
  ASSERT_EQ(manifest.entries.size(), 1u);
  EXPECT_EQ(manifest.entries[0].name, "softmax_kernel<T>");
  EXPECT_THAT(manifest.examples,
              ElementsAre(ElementsAre(Dims{4096, 1024}), ElementsAre(Dims{2, 3, 64})));
  // The digest is of this text: neither spaces nor the order of members change it.
  const Json parsed = Json::parse(kSoftmax);
  EXPECT_EQ(manifest.canonical, parsed.dump());
  EXPECT_EQ(Read(parsed.dump(4)).canonical, manifest.canonical);
}

TEST(KernelManifestTest, LaunchesFollowTheProblem) {
  const KernelManifest manifest = Read(kSoftmax);
  const Problem problem = SoftmaxOf({3, 3, 64});
  ASSERT_TRUE(CheckTaken(manifest, problem, testing::ManifestGpu()).ok());
  const auto launches = LaunchesFor(manifest, problem, testing::ManifestGpu());
  ASSERT_TRUE(launches.ok()) << launches.status();
  EXPECT_EQ(launches->scratch_bytes, 3 * 3 * 64 * 4 + 256);
  ASSERT_EQ(launches->launches.size(), 1u);
  const KernelLaunch& launch = launches->launches[0];
  EXPECT_THAT(launch.grid, ElementsAre(3, 1, 1));
  EXPECT_THAT(launch.block, ElementsAre(128, 1, 1));
  EXPECT_EQ(launch.shared_bytes, 256u);
  ASSERT_EQ(launch.parameters.size(), 8u);
  EXPECT_EQ(launch.parameters[0].operand, 0);
  EXPECT_EQ(launch.parameters[1].operand, 1);
  EXPECT_EQ(launch.parameters[2].operand, kScratchOperand);
  EXPECT_EQ(launch.parameters[2].bytes, 8u);
  EXPECT_EQ(As<int64_t>(launch.parameters[3]), 9);
  EXPECT_EQ(As<int32_t>(launch.parameters[4]), 64);
  EXPECT_EQ(As<float>(launch.parameters[5]), 1.5f);
  EXPECT_EQ(As<uint64_t>(launch.parameters[6]), 0u);
  EXPECT_EQ(As<float>(launch.parameters[7]), -55.0f);
}

TEST(KernelManifestTest, SeveralKernelsRunInOrder) {
  Json json = Json::parse(kSoftmax);
  json["code"].erase("entry");
  json.erase("args");
  json.erase("launch");
  for (const char* const entry : {"first", "second"})
    json["kernels"].push_back({{"entry", entry},
                               {"args", {"x.ptr", "rows:u32"}},
                               {"launch", {{"grid", {"rows"}}, {"block", {32, 2, 2}}}}});
  const KernelManifest manifest = Read(json.dump());
  ASSERT_EQ(manifest.entries.size(), 2u);
  EXPECT_EQ(manifest.entries[1].name, "second");
  const auto launches = LaunchesFor(manifest, SoftmaxOf({5, 8}), testing::ManifestGpu());
  ASSERT_TRUE(launches.ok()) << launches.status();
  ASSERT_EQ(launches->launches.size(), 2u);
  EXPECT_EQ(As<uint32_t>(launches->launches[1].parameters[1]), 5u);
  EXPECT_THAT(launches->launches[1].block, ElementsAre(32, 2, 2));
  json["args"] = {"x.ptr"};
  EXPECT_EQ(Complaint(json), "the manifest: has kernels, and args beside");
}

// m, n, k and batch as the op defines them, operands by their names, attributes.
TEST(KernelManifestTest, NamesHaveTheValuesOfTheProblem) {
  const auto value_of = [](const Op& op, const std::vector<Dims>& shapes,
                           const std::vector<NamedAttribute>& attributes, const std::string& text) {
    Json json = {{"name", "n"},
                 {"op", op.name},
                 {"types", {"float16"}},
                 {"code", {{"kind", "cuda"}, {"entry", "e"}}},
                 {"args", {text + ":i64"}},
                 {"launch", {{"grid", {1}}, {"block", {1}}}}};
    std::vector<TensorSpec> inputs;
    for (const Dims& dims : shapes) inputs.push_back({DataType::kFloat16, dims});
    const auto launches = LaunchesFor(Read(json.dump()), *MakeProblem(op, inputs, attributes),
                                      testing::ManifestGpu());
    EXPECT_TRUE(launches.ok()) << launches.status();
    return launches.ok() ? As<int64_t>(launches->launches[0].parameters[0]) : -1;
  };
  const std::vector<Dims> product = {{5, 7, 3}, {2, 5, 3, 11}};
  for (const bool transposed : {false, true}) {
    std::vector<Dims> shapes = product;
    if (transposed) shapes[0] = {5, 3, 7};
    const auto of = [&](const std::string& text) {
      return value_of(MatmulOp(), shapes, {{"transpose_a", transposed}}, text);
    };
    EXPECT_EQ(of("m"), 7);
    EXPECT_EQ(of("n"), 11);
    EXPECT_EQ(of("k"), 3);
    EXPECT_EQ(of("batch"), 10);
    EXPECT_EQ(of("attr.transpose_a"), transposed ? 1 : 0);
    EXPECT_EQ(of("c.shape[-2]"), 7);
    EXPECT_EQ(of("b.rank"), 4);
    EXPECT_EQ(of("b.bytes"), 2 * 2 * 5 * 3 * 11);
  }
  const auto linear = [&](const std::string& text) {
    return value_of(LinearOp(), {{2, 7, 3}, {11, 3}, {11}}, {}, text);
  };
  EXPECT_EQ(linear("m"), 14);
  EXPECT_EQ(linear("n"), 11);
  EXPECT_EQ(linear("k"), 3);
  EXPECT_EQ(linear("batch"), 1);
  EXPECT_EQ(linear("weight.shape[0] * 100 + y.elements"), 1100 + 154);
  EXPECT_EQ(value_of(SoftmaxOp(), {{8}}, {}, "rows * 1000 + cols * 10 + elements"), 1088);
  EXPECT_EQ(value_of(SoftmaxOp(), {{8}}, {}, "sm_count"), 132);
}

TEST(KernelManifestTest, AFloatCanBeAnAttribute) {
  const KernelManifest manifest = Read(R"({"name": "n", "op": "layernorm", "types": ["float32"],
    "attributes": {"epsilon": 1}, "code": {"kind": "cuda", "entry": "e"},
    "args": ["bias.ptr", "y.ptr", "attr.epsilon:f32"],
    "launch": {"grid": [1], "block": [1]}})");
  const Problem problem = *MakeProblem(
      LayernormOp(),
      {{DataType::kFloat32, {2, 4}}, {DataType::kFloat32, {4}}, {DataType::kFloat32, {4}}},
      AttributesOf(manifest));
  const auto launches = LaunchesFor(manifest, problem, testing::ManifestGpu());
  ASSERT_TRUE(launches.ok()) << launches.status();
  EXPECT_EQ(launches->launches[0].parameters[0].operand, 2);
  EXPECT_EQ(launches->launches[0].parameters[1].operand, 3);
  EXPECT_EQ(As<float>(launches->launches[0].parameters[2]), 1.0f);
}

// fused takes one to eight inputs.
TEST(KernelManifestTest, TheOutputComesBehindTheInputsThatThereAre) {
  Json json = Json::parse(R"json({"name": "n", "op": "fused", "types": ["float32"],
    "attributes": {"expression": "x0 + x1"}, "code": {"kind": "cuda", "entry": "e"},
    "args": ["y.ptr", "x1.ptr", "y.elements:i32"],
    "launch": {"grid": [1], "block": [1]}})json");
  const TensorSpec x = {DataType::kFloat32, {3, 5}};
  const Problem problem = *MakeProblem(FusedOp(), {x, x}, {{"expression", std::string("x0 + x1")}});
  const auto launches = LaunchesFor(Read(json.dump()), problem, testing::ManifestGpu());
  ASSERT_TRUE(launches.ok()) << launches.status();
  EXPECT_EQ(launches->launches[0].parameters[0].operand, 2);
  EXPECT_EQ(launches->launches[0].parameters[1].operand, 1);
  EXPECT_EQ(As<int32_t>(launches->launches[0].parameters[2]), 15);
  for (const char* const missing : {"x2.ptr", "x2.elements:i32"}) {
    json["args"][0] = missing;
    EXPECT_THAT(
        std::string(
            LaunchesFor(Read(json.dump()), problem, testing::ManifestGpu()).status().message()),
        HasSubstr("the problem has "))
        << missing;
  }
  json["attributes"].erase("expression");
  EXPECT_THAT(Complaint(json), HasSubstr("attributes: attribute expression is required"));
}

TEST(KernelManifestTest, OtherProblemsAreRefused) {
  const KernelManifest manifest = Read(kSoftmax);
  const auto refusal = [&](const Problem& problem) {
    return std::string(CheckTaken(manifest, problem, testing::ManifestGpu()).message());
  };
  EXPECT_EQ(refusal(SoftmaxOf({4, 64})), "");
  EXPECT_EQ(refusal(SoftmaxOf({4, 64}, DataType::kFloat16)),
            "types: the kernel is not for float16");
  EXPECT_EQ(refusal(SoftmaxOf({4, 64}, DataType::kFloat32, 0)),
            "attributes: the kernel is for axis=-1, the problem has 0");
  EXPECT_EQ(refusal(SoftmaxOf({4, 60})), "the kernel requires cols % 8 == 0, got float32[4,60]");
  EXPECT_EQ(refusal(SoftmaxOf({1, 16392})),
            "the kernel requires cols <= 16384, got float32[1,16392]");
}

TEST(KernelManifestTest, WhatCannotBeLaunchedIsRefusedWithValueAndLimit) {
  const auto refusal = [](const char* path, const Json& value, Dims dims = {4, 64}) {
    Json json = Json::parse(kSoftmax);
    json[Json::json_pointer(path)] = value;
    return std::string(
        LaunchesFor(Read(json.dump()), SoftmaxOf(std::move(dims)), testing::ManifestGpu())
            .status()
            .message());
  };
  EXPECT_EQ(refusal("/launch/grid/0", "rows - 4"),
            "launch.grid[0]: \"rows - 4\" is 0; it takes 1 to 2147483647, for float32[4,64]");
  EXPECT_THAT(refusal("/launch/grid/1", 65536), HasSubstr("is 65536; it takes 1 to 65535"));
  EXPECT_THAT(refusal("/launch/block/0", "cols * 17"), HasSubstr("is 1088; it takes 1 to 1024"));
  EXPECT_THAT(refusal("/launch/block", {32, 33}),
              HasSubstr("launch.block: a block has 1056 threads; the limit is 1024"));
  EXPECT_THAT(refusal("/launch/block", {1, 1, 65}), HasSubstr("is 65; it takes 1 to 64"));
  EXPECT_THAT(refusal("/launch/shared", "232449"), HasSubstr("it takes 0 to 232448"));
  EXPECT_THAT(refusal("/launch/shared", "0 - 1"), HasSubstr("is -1; it takes 0 to 232448"));
  EXPECT_THAT(refusal("/args/4", "cols * 33554432:i32"),
              HasSubstr("is 2147483648; it takes -2147483648 to 2147483647"));
  EXPECT_THAT(refusal("/args/4", "0 - 1:u32"), HasSubstr("is -1; it takes 0 to 4294967295"));
  EXPECT_THAT(refusal("/args/4", "0 - 1:u64"), HasSubstr("is -1; it takes 0 to 92233720"));
  EXPECT_THAT(refusal("/args/4", "x.shape[1]:i32", {64}),
              HasSubstr("column 1: x.shape[1]: x is float32[64], of rank 1"));
  EXPECT_THAT(refusal("/launch/grid/0", "rows / (cols - 64)"),
              HasSubstr("launch.grid[0]: \"rows / (cols - 64)\", column 6: 4 is divided by 0"));
  EXPECT_THAT(refusal("/scratch", "0 - 1"), HasSubstr("scratch: \"0 - 1\" is -1"));
}

TEST(KernelManifestTest, EveryMemberMustBeOfItsType) {
  const Json right = Json::parse(kSoftmax);
  const Json flat = right.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    for (const Json& other : {Json(nullptr), Json(-1.5), Json::array({1}), Json::object()}) {
      Json wrong = right;
      wrong[Json::json_pointer(pointer)] = other;
      EXPECT_NE(Complaint(wrong), "") << pointer << " is " << other;
    }
  }
  for (const char* const needed : {"name", "op", "types", "code", "args", "launch"}) {
    Json missing = right;
    missing.erase(needed);
    EXPECT_EQ(Complaint(missing), absl::StrCat("the manifest: ", needed, " is missing"));
  }
  for (const char* const free : {"attributes", "inputs", "deterministic", "requires", "examples"}) {
    Json missing = right;
    missing.erase(free);
    EXPECT_EQ(Complaint(missing), "");
  }
}

TEST(KernelManifestTest, ComplaintsNameTheMember) {
  const auto complaint = [](const char* path, const Json& value) {
    Json json = Json::parse(kSoftmax);
    json[Json::json_pointer(path)] = value;
    return Complaint(json);
  };
  EXPECT_THAT(complaint("/colour", 1),
              HasSubstr("the manifest: colour is unknown; known are name,"));
  EXPECT_THAT(complaint("/launch/cluster", 1),
              HasSubstr("launch.cluster is unknown; known are grid"));
  for (const char* const name : {"", "Softmax", "1st", "a b", "über"})
    EXPECT_THAT(complaint("/name", name), HasSubstr("name does not match [a-z]")) << name;
  EXPECT_THAT(complaint("/name", std::string(64, 'a')), HasSubstr("name does not match"));
  EXPECT_EQ(complaint("/op", "conv"),
            "the manifest: op is \"conv\", which is no op of this server; `warpcall kernels` lists "
            "them");
  EXPECT_THAT(complaint("/attributes/axes", 1),
              HasSubstr("attributes.axes is no attribute of softmax"));
  EXPECT_THAT(complaint("/attributes/axis", 1.5), HasSubstr("attributes.axis is not an integer"));
  EXPECT_THAT(complaint("/types/0", "int8"), HasSubstr("types[0] is \"int8\"; known are float32"));
  EXPECT_THAT(complaint("/types/1", "float32"), HasSubstr("types[1] stands there twice"));
  EXPECT_THAT(complaint("/types", Json::array()),
              HasSubstr("types has 0 entries; it takes 1 to 3"));
  EXPECT_THAT(complaint("/inputs", "some"),
              HasSubstr("inputs is \"some\"; it takes any or finite"));
  EXPECT_THAT(complaint("/code/kind", "ptx"), HasSubstr("code.kind is \"ptx\"; it takes cuda"));
  EXPECT_THAT(complaint("/code/entry", "a;b"), HasSubstr("code.entry is no name of a kernel"));
  EXPECT_THAT(complaint("/args/0", "z.ptr"),
              HasSubstr("args[0] names \"z\", which is no operand of softmax: x, y"));
  EXPECT_THAT(complaint("/args/0", "rows"), HasSubstr("args[0] is \"rows\"; it takes OPERAND.ptr"));
  EXPECT_THAT(complaint("/args/0", "rows:i8"), HasSubstr("it takes OPERAND.ptr"));
  EXPECT_THAT(
      complaint("/args/0", "m:i32"),
      HasSubstr("args[0] \"m\", column 1: expected a number or a known name; for softmax these are "
                "rows, cols, elements, sm_count, zero, attr.axis, x.shape[i], x.rank, x.elements, "
                "x.bytes, and of y likewise"));
  EXPECT_THAT(complaint("/launch/grid", {1, 1, 1, 1}),
              HasSubstr("grid has 4 entries; it takes 1 to 3"));
  EXPECT_THAT(complaint("/launch/grid/0", "ceil(rows)"),
              HasSubstr("launch.grid[0] \"ceil(rows)\", column 1"));
  EXPECT_THAT(complaint("/requires/0", "cols"),
              HasSubstr("requires[0] \"cols\", column 5: expected a comparison"));
  EXPECT_THAT(
      complaint("/examples/0", {{0, 4}, {1}}),
      HasSubstr("examples[0] has 2 entries; it takes a shape for each of x, which is a list"));
  EXPECT_THAT(complaint("/examples/0/0", Json::array()), HasSubstr("examples[0][0] has 0 entries"));
  Json json = Json::parse(kSoftmax);
  json.erase("scratch");
  EXPECT_EQ(Complaint(json),
            "the manifest: args[2] is scratch.ptr, and the manifest has no scratch");
  json["args"] = Json::array();
  for (int i = 0; i < 65; ++i) json["args"].push_back("x.ptr");
  EXPECT_THAT(Complaint(json), HasSubstr("args has 65 entries; it takes 1 to 64"));
  EXPECT_THAT(Complaint(Json(std::string(65'536, 'x'))), HasSubstr("the limit is 65536"));
  EXPECT_THAT(std::string(ReadKernelManifest("{", FindTestOp).status().message()),
              HasSubstr("the manifest is no JSON: line 1, column 2, at its end"));
  EXPECT_THAT(
      std::string(ReadKernelManifest("{\n  \"name\": \"a\",\n}", FindTestOp).status().message()),
      HasSubstr("the manifest is no JSON: line 3, column 1, at \"}\""));
  EXPECT_THAT(std::string(ReadKernelManifest("", FindTestOp).status().message()),
              HasSubstr("the manifest is no JSON: line 1, column 1, at its end"));
}

TEST(KernelManifestTest, OptionsReadNoFile) {
  const auto complaint = [](const std::string& option) {
    Json json = Json::parse(kSoftmax);
    json["code"]["options"] = {option};
    return Complaint(json);
  };
  for (const char* const option :
       {"-std=c++17", "-std=c++20", "-DA", "-DA=f(x) + 1", "--use_fast_math", "--fmad=false",
        "--maxrregcount=64", "-lineinfo", "--restrict"})
    EXPECT_EQ(complaint(option), "") << option;
  for (const char* const option :
       {"-I/etc", "--pre-include=/etc/hostname", "-include", "-D", "-D=1", "-DA-B", "-DA=\n",
        "--maxrregcount=0", "--maxrregcount=256", "--maxrregcount=", "--maxrregcount= 64",
        "--maxrregcount=64\n", "--maxrregcount=+64", "--fmad=1", "-std=c++23",
        "--relocatable-device-code=true", "--time=/tmp/x", ""})
    EXPECT_THAT(complaint(option), AllOf(HasSubstr("code.options[0] is \""),
                                         HasSubstr("\", which is not allowed; allowed are")))
        << option;
  EXPECT_THAT(complaint("-D" + std::string(127, 'A')), HasSubstr("is not allowed"));
}

}  // namespace
}  // namespace warpcall::manifest
