// Required content of a manifest, and the handling of wrong or truncated ones: the tests remove,
// replace and break each entry of a right manifest in turn.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/triton/manifest.h"
#include "kernels/triton/select.h"

namespace warpcall::triton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// The parts of a cubin that the reader looks at: a header, and a section of four bytes.
std::string Cubin() {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = 190;
  header.e_shoff = sizeof(header);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 2;
  Elf64_Shdr sections[2] = {};
  sections[0].sh_type = SHT_NULL;
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = sizeof(header) + sizeof(sections);
  sections[1].sh_size = 4;
  std::string cubin(reinterpret_cast<const char*>(&header), sizeof(header));
  cubin.append(reinterpret_cast<const char*>(sections), sizeof(sections));
  return cubin + "code";
}

// One kernel, as compile.py writes it.
Json RightManifest() {
  return Json::parse(R"json({"format": 1, "kernels": [{
      "op": "matmul", "data_type": "bfloat16", "variant": "64x64 nn by 16", "tile": "64x64",
      "traits": {"layout": "nn"}, "constants": {"TILE_M": 64}, "given": ["batches"],
      "arguments": [{"name": "a", "type": "pointer", "divisible_by": 16},
                    {"name": "m", "type": "i32", "divisible_by": 1},
                    {"name": "stride", "type": "i64", "divisible_by": 16}],
      "grid": ["ceil(m / TILE_M)", "batches"], "requires": ["m + TILE_M <= 2147483647"],
      "images": [{"architecture": 90, "entry": "matmul", "threads": 128, "shared_bytes": 65536,
                  "parameter_bytes": [8, 4, 8, 8, 8], "scratch_bytes": [0, 0],
                  "offset": 0, "bytes": 0}]}],
    "choices": [{"op": "matmul", "data_type": "bfloat16", "sizes": [64, 64, 64],
                 "tile": "64x64"}]
})json");
}

struct Written {
  Json manifest = RightManifest();
  std::string cubins = Cubin();

  Written() { Image()["bytes"] = cubins.size(); }
  Json& Kernel() { return manifest["kernels"][0]; }
  Json& Image() { return Kernel()["images"][0]; }
  absl::StatusOr<Manifest> Read() const { return ReadManifest(manifest.dump(), cubins); }
  std::string Complaint() const {
    const absl::Status status = Read().status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }
};

TEST(ManifestTest, IsReadAsItWasWritten) {
  const Written written;
  const auto manifest = written.Read();
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->unavailable, "");
  EXPECT_EQ(manifest->Find("matmul", DataType::kFloat32), nullptr);
  EXPECT_EQ(manifest->Find("gelu", DataType::kBFloat16), nullptr);
  const KernelSet* const set = manifest->Find("matmul", DataType::kBFloat16);
  ASSERT_NE(set, nullptr);
  ASSERT_EQ(set->kernels.size(), 1u);
  const CompiledKernel& kernel = set->kernels[0];
  EXPECT_EQ(kernel.variant, "64x64 nn by 16");
  EXPECT_EQ(kernel.tile, "64x64");
  EXPECT_THAT(kernel.traits, ElementsAre(std::pair("layout", "nn")));
  ASSERT_EQ(kernel.arguments.size(), 3u);
  EXPECT_EQ(kernel.arguments[0].type, Argument::Type::kPointer);
  EXPECT_EQ(kernel.arguments[1].type, Argument::Type::kInt32);
  EXPECT_EQ(kernel.arguments[2].type, Argument::Type::kInt64);
  EXPECT_EQ(kernel.arguments[2].divisible_by, 16);
  ASSERT_EQ(kernel.grid.size(), 2u);
  EXPECT_EQ(*kernel.grid[0].Evaluate([](absl::string_view name) { return name == "m" ? 65 : 64; }),
            2);
  ASSERT_EQ(kernel.images.size(), 1u);
  EXPECT_EQ(kernel.images[0].threads, 128);
  EXPECT_EQ(kernel.images[0].shared_bytes, 65536u);
  EXPECT_THAT(kernel.images[0].parameter_bytes, ElementsAre(8, 4, 8, 8, 8));
  EXPECT_EQ(kernel.images[0].cubin.data(), written.cubins.data());
  ASSERT_EQ(set->choices.size(), 1u);
  EXPECT_THAT(set->choices[0].sizes, ElementsAre(64, 64, 64));
}

// kernels/triton/CMakeLists.txt writes such a manifest.
TEST(ManifestTest, SaysWhyThereAreNoKernels) {
  const auto manifest =
      ReadManifest(R"({"format":1,"unavailable":"no \"python3\"","choices":[],"kernels":[]})", "");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->unavailable, "no \"python3\"");
  EXPECT_TRUE(manifest->sets.empty());
}

TEST(ManifestTest, EveryEntryMustBeThereAndOfItsType) {
  const Json right = Written().manifest.flatten();
  ASSERT_GT(right.size(), 25u);
  for (const auto& [pointer, value] : right.items()) {
    // Traits and constants are as many as there are.
    const bool is_free = pointer.find("/traits/") != std::string::npos ||
                         pointer.find("/constants/") != std::string::npos;
    for (const Json& other : {Json(nullptr), Json(-1), Json(1.5), Json(true), Json::array()}) {
      Written wrong;
      wrong.manifest[Json::json_pointer(pointer)] = other;
      EXPECT_NE(wrong.Complaint(), "") << pointer << " is " << other;
    }
    const Json::json_pointer at(pointer);
    Written missing;
    Json& parent = missing.manifest[at.parent_pointer()];
    if (!parent.is_object() || is_free) continue;
    parent.erase(at.back());
    EXPECT_THAT(missing.Complaint(), HasSubstr("is missing")) << pointer;
  }
}

TEST(ManifestTest, ComplaintsNameTheEntry) {
  Written written;
  written.Kernel()["arguments"][1]["type"] = "f16";
  EXPECT_EQ(written.Complaint(),
            "the kernels' manifest: kernels[0].arguments[1] has type \"f16\"; "
            "known are pointer, i32, i64 and fp32");
  written = {};
  written.Kernel()["grid"][0] = "ceil(k / TILE_M)";
  EXPECT_THAT(written.Complaint(), HasSubstr("kernels[0].grid[0] \"ceil(k / TILE_M)\", column 6: "
                                             "expected a number or a known name"));
  written = {};
  written.manifest["format"] = 2;
  EXPECT_THAT(written.Complaint(), HasSubstr("format is 2; the limit is 1"));
}

// A float has four bytes; expressions are in integers and cannot use it.
TEST(ManifestTest, FloatsAreArgumentsButNoNamesOfExpressions) {
  Written written;
  written.Kernel()["arguments"][1] = {{"name", "m"}, {"type", "fp32"}, {"divisible_by", 1}};
  EXPECT_THAT(written.Complaint(), HasSubstr("kernels[0].grid[0] \"ceil(m / TILE_M)\", column 6: "
                                             "expected a number or a known name"));
  written.Kernel()["grid"] = {"batches"};
  written.Kernel()["requires"] = Json::array();
  const auto manifest = written.Read();
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const Argument& argument = manifest->sets[0].kernels[0].arguments[1];
  EXPECT_EQ(argument.type, Argument::Type::kFloat32);
  EXPECT_FALSE(IsInteger(argument));
  written.Kernel()["arguments"][1]["divisible_by"] = 16;
  EXPECT_THAT(written.Complaint(), HasSubstr("arguments[1].divisible_by is 16; the limit is 1"));
  written.Kernel()["arguments"][1]["divisible_by"] = 1;
  written.Image()["parameter_bytes"] = {8, 8, 8};
  EXPECT_THAT(written.Complaint(), HasSubstr("a parameter 1 of 8 bytes; expected are 4"));
}

TEST(ManifestTest, ParametersAreTheArgumentsAndUpToTwoHiddenOnes) {
  for (const Json& right : {Json{8, 4, 8}, Json{8, 4, 8, 8}, Json{8, 4, 8, 8, 8}}) {
    Written written;
    written.Image()["parameter_bytes"] = right;
    EXPECT_TRUE(written.Read().ok()) << right << ": " << written.Read().status();
  }
  for (const Json& wrong : {Json{8, 4}, Json{8, 8, 8}, Json{8, 4, 8, 4}, Json{8, 4, 8, 8, 8, 8}}) {
    Written written;
    written.Image()["parameter_bytes"] = wrong;
    EXPECT_THAT(written.Complaint(), HasSubstr("kernels[0].images[0] has ")) << wrong;
  }
}

TEST(ManifestTest, KernelsThatNeedScratchMemoryAreRefused) {
  for (const Json& scratch : {Json{384, 0}, Json{0, 16}}) {
    Written written;
    written.Image()["scratch_bytes"] = scratch;
    EXPECT_THAT(written.Complaint(), HasSubstr("needs scratch memory"));
  }
}

TEST(ManifestTest, CubinsThatAreCutShortAreRefused) {
  for (size_t bytes = 0; bytes < Cubin().size(); ++bytes) {
    Written cut;
    cut.Image()["bytes"] = bytes;
    EXPECT_THAT(cut.Complaint(), HasSubstr("is no whole cubin")) << bytes;
    Written lost;
    lost.cubins.resize(bytes);
    EXPECT_THAT(lost.Complaint(), HasSubstr("images[0].bytes is ")) << bytes;
  }
  Written beyond;
  beyond.Image()["offset"] = beyond.cubins.size() + 1;
  EXPECT_THAT(beyond.Complaint(), HasSubstr("images[0].offset is "));
}

TEST(ManifestTest, WhatIsNoCubinIsRefused) {
  struct Case {
    size_t offset;
    char value;
  };
  for (const Case& wrong :
       {Case{0, 'E'}, Case{EI_CLASS, ELFCLASS32}, Case{offsetof(Elf64_Ehdr, e_machine), 62},
        Case{offsetof(Elf64_Ehdr, e_shnum), 3}, Case{offsetof(Elf64_Ehdr, e_shoff) + 7, 127},
        Case{offsetof(Elf64_Ehdr, e_shentsize), 63},
        Case{sizeof(Elf64_Ehdr) + sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_size), 5},
        Case{sizeof(Elf64_Ehdr) + sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_offset) + 7, 127}}) {
    Written written;
    written.cubins[wrong.offset] = wrong.value;
    EXPECT_THAT(written.Complaint(), HasSubstr("is no whole cubin")) << wrong.offset;
  }
}

TEST(ManifestTest, RubbishIsNoManifest) {
  EXPECT_THAT(std::string(ReadManifest("", "").status().message()),
              HasSubstr("0 bytes is no JSON"));
  EXPECT_FALSE(ReadManifest("[]", "").ok());
  const std::string right = Written().manifest.dump();
  for (size_t bytes = 0; bytes < right.size(); ++bytes)
    EXPECT_FALSE(ReadManifest(absl::string_view(right).substr(0, bytes), Cubin()).ok()) << bytes;
}

// Bytes that change anywhere end in a manifest or in a complaint, never in a crash.
TEST(ManifestTest, NoChangeOfBytesCrashes) {
  std::mt19937_64 random(13);
  const Written right;
  const std::string json = right.manifest.dump();
  for (int i = 0; i < 4000; ++i) {
    std::string changed = json;
    std::string cubins = right.cubins;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      std::string& target = random() % 2 == 0 ? changed : cubins;
      target[random() % target.size()] = static_cast<char>(random());
    }
    const auto manifest = ReadManifest(changed, cubins);
    if (!manifest.ok()) {
      EXPECT_NE(manifest.status().message(), "");
    }
  }
}

DeviceProperties DeviceOf(int32_t architecture) {
  DeviceProperties device;
  device.name = "cuda:0";
  device.kind = DeviceKind::kCuda;
  device.shared_memory_per_block_bytes = 227 << 10;
  device.architecture = architecture;
  device.compute_capability =
      std::to_string(architecture / 10) + "." + std::to_string(architecture % 10);
  return device;
}

using manifest::IntegerExpression;

bool IsTritonName(absl::string_view name) {
  return name == "rows" || name == "n" || name == "COLUMNS" || name == "ROWS";
}

// A kernel like softmax's: `rows` rows of up to `columns` a block.
CompiledKernel TritonKernelOf(int64_t columns, int64_t rows, int64_t divisor) {
  CompiledKernel kernel;
  kernel.tile = std::to_string(columns) + "x" + std::to_string(rows);
  kernel.variant = kernel.tile + (divisor == 1 ? "" : " by 16");
  kernel.arguments = {{"x", Argument::Type::kPointer, 16},
                      {"rows", Argument::Type::kInt64, 1},
                      {"n", Argument::Type::kInt32, divisor}};
  kernel.constants = {{"COLUMNS", columns}, {"ROWS", rows}};
  kernel.grid = {*IntegerExpression::Parse("ceil(rows / ROWS)", IsTritonName)};
  kernel.requirements = {*IntegerExpression::ParseCondition("n <= COLUMNS", IsTritonName)};
  for (const int32_t architecture : {80, 90}) {
    Image image;
    image.architecture = architecture;
    image.threads = 128;
    kernel.images.push_back(std::move(image));
  }
  return kernel;
}

KernelSet Rows() {
  KernelSet set;
  set.op = "softmax";
  for (const int64_t divisor : {16, 1})
    for (const int64_t columns : {64, 256, 1024})
      set.kernels.push_back(TritonKernelOf(columns, 1024 / columns, divisor));
  set.choices = {{{4096, 64}, "64x16"}, {{4096, 256}, "256x4"}, {{4096, 1024}, "1024x1"}};
  return set;
}

Order OrderOf(int64_t rows, int64_t n) {
  return {.traits = {}, .integers = {{"rows", rows}, {"n", n}}, .sizes = {rows, n}};
}

std::string ChosenOf(const KernelSet& set, const Order& order, int32_t architecture = 90) {
  const auto chosen = Choose(set, order, DeviceOf(architecture));
  if (!chosen.ok()) return std::string(chosen.status().message());
  return set.kernels[static_cast<size_t>(*chosen)].variant;
}

TEST(SelectTest, TakesTheTileThatIsNearestAmongThoseWithRoom) {
  const KernelSet set = Rows();
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 16)), "64x16 by 16");
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 64)), "64x16 by 16");
  // 80 is nearer to 64, which has no room for it.
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 80)), "256x4 by 16");
  EXPECT_EQ(ChosenOf(set, OrderOf(1, 1024)), "1024x1 by 16");
}

TEST(SelectTest, WhatDoesNotDivideTakesTheGeneralKernel) {
  const KernelSet set = Rows();
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 63)), "64x16");
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 1023)), "1024x1");
  const auto blocks = BlocksFor(set.kernels[0], OrderOf(4096, 63), DeviceOf(90));
  EXPECT_EQ(blocks.status().message(),
            "variant \"64x16 by 16\" wants n to be a multiple of 16, got 63");
}

TEST(SelectTest, ChoicesAreMeasuredNotOrdered) {
  KernelSet set = Rows();
  set.choices[0].tile = "1024x1";
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 64)), "1024x1 by 16");
  // Rows count as columns do: half as many of both are as near as a quarter of one.
  set.choices = {{{1024, 64}, "64x16"}, {{16, 64}, "256x4"}};
  EXPECT_EQ(ChosenOf(set, OrderOf(512, 64)), "64x16 by 16");
  EXPECT_EQ(ChosenOf(set, OrderOf(32, 64)), "256x4 by 16");
}

TEST(SelectTest, WithoutAChoiceTheFirstThatTakesItIsChosen) {
  KernelSet set = Rows();
  set.choices = {{{4096}, "1024x1"}, {{4096, 64}, "no such tile"}};
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 100)), "256x4");
}

TEST(SelectTest, RefusalsNameTheMostGeneralKernelsReason) {
  const KernelSet set = Rows();
  const absl::Status status = CheckTaken(set, OrderOf(3, 1025), DeviceOf(90));
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_EQ(status.message(), "variant \"1024x1\" requires n <= COLUMNS, got rows 3, n 1025");
  EXPECT_EQ(Choose(set, OrderOf(3, 1025), DeviceOf(90)).status(), status);
  EXPECT_TRUE(CheckTaken(set, OrderOf(3, 1024), DeviceOf(90)).ok());
  EXPECT_EQ(CheckTaken(KernelSet(), OrderOf(1, 1), DeviceOf(90)).message(),
            "no kernel was compiled for this");
}

TEST(SelectTest, OtherTraitsAreNoReason) {
  KernelSet set = Rows();
  for (size_t i = 0; i < set.kernels.size(); ++i)
    set.kernels[i].traits = {{"form", i < 4 ? "tanh" : "none"}};
  Order order = OrderOf(4096, 16);
  order.traits = {{"form", "none"}};
  EXPECT_EQ(ChosenOf(set, order), "256x4");
  order = OrderOf(4096, 65);
  order.traits = {{"form", "tanh"}};
  EXPECT_EQ(ChosenOf(set, order), "variant \"64x16\" requires n <= COLUMNS, got rows 4096, n 65");
}

TEST(SelectTest, BlocksAreWhatTheGridSaysWithinCudasLimits) {
  const CompiledKernel kernel = TritonKernelOf(64, 16, 1);
  const auto blocks = BlocksFor(kernel, OrderOf(33, 64), DeviceOf(90));
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_EQ(blocks->x, 3u);
  EXPECT_EQ(blocks->y, 1u);
  EXPECT_TRUE(BlocksFor(kernel, OrderOf(int64_t{0x7FFFFFFF} * 16, 64), DeviceOf(90)).ok());
  const auto many = BlocksFor(kernel, OrderOf(int64_t{0x7FFFFFFF} * 16 + 1, 64), DeviceOf(90));
  EXPECT_THAT(std::string(many.status().message()),
              HasSubstr("would take 2147483648 blocks in dimension 0 of its grid; the limit is "
                        "2147483647"));
  CompiledKernel deep = kernel;
  deep.grid = {*IntegerExpression::Parse("1", IsTritonName),
               *IntegerExpression::Parse("rows", IsTritonName)};
  EXPECT_TRUE(BlocksFor(deep, OrderOf(65535, 1), DeviceOf(90)).ok());
  EXPECT_FALSE(BlocksFor(deep, OrderOf(65536, 1), DeviceOf(90)).ok());
  EXPECT_FALSE(BlocksFor(deep, OrderOf(0, 1), DeviceOf(90)).ok());
}

TEST(SelectTest, IntegersOf32BitsAreNotCut) {
  CompiledKernel kernel = TritonKernelOf(64, 16, 1);
  kernel.requirements.clear();
  EXPECT_TRUE(BlocksFor(kernel, OrderOf(1, 0x7FFFFFFF), DeviceOf(90)).ok());
  EXPECT_EQ(BlocksFor(kernel, OrderOf(1, 0x80000000), DeviceOf(90)).status().message(),
            "variant \"64x16\" takes n up to 2147483647, got 2147483648");
}

TEST(SelectTest, CodeRunsOnItsComputeCapabilityAndBeforeHopperOnLaterOnesOfItsGeneration) {
  CompiledKernel kernel;
  for (const int32_t architecture : {80, 86, 90, 120}) {
    kernel.images.emplace_back();
    kernel.images.back().architecture = architecture;
  }
  const auto image_for = [&](int32_t architecture) {
    const Image* const image = ImageFor(kernel, architecture);
    return image == nullptr ? 0 : image->architecture;
  };
  EXPECT_EQ(image_for(80), 80);
  EXPECT_EQ(image_for(87), 86);
  EXPECT_EQ(image_for(89), 86);
  EXPECT_EQ(image_for(90), 90);
  EXPECT_EQ(image_for(75), 0);
  EXPECT_EQ(image_for(100), 0);
  EXPECT_EQ(image_for(121), 0);
}

TEST(SelectTest, DevicesThatCannotRunItAreTold) {
  KernelSet set = Rows();
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 64), 100),
            "the kernels are not compiled for cuda:0's compute capability 10.0; "
            "CMAKE_CUDA_ARCHITECTURES decides that");
  for (CompiledKernel& kernel : set.kernels) kernel.images.back().shared_bytes = 256 << 10;
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 1024)),
            "variant \"1024x1\" needs 262144 bytes of shared memory a block; cuda:0 has 232448");
}

}  // namespace
}  // namespace warpcall::triton
