// `warpcall run` on data as people have them: made up, of other types, in pipes.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/cli/cli_fixture.h"

namespace warpcall::cli {
namespace {

using client::Tensor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class OwnDataTest : public CliTest {
 protected:
  // A .npy file of two elements of this type.
  template <typename T>
  std::string Store(const std::string& descr, T first, T second) {
    std::string header =
        absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (2,), }\n");
    const std::string path = folder_.Path("in.npy");
    const T values[] = {first, second};
    std::ofstream(path, std::ios::binary)
        << std::string("\x93NUMPY\x01\0", 8) << static_cast<char>(header.size()) << '\0' << header
        << std::string(reinterpret_cast<const char*>(values), sizeof values);
    return path;
  }

  const std::string y_ = folder_.Path("y.npy");
};

TEST_F(OwnDataTest, ShapeMakesInputsBySeed) {
  const auto first = [&](const std::string& options) {
    EXPECT_EQ(Warpcall("run gelu --shape 3x4 " + options).exit_status, 0);
    return execute_.TakeText();
  };
  const std::string one = first("");
  EXPECT_THAT(one, HasSubstr("inputs { data_type: DATA_TYPE_FLOAT32 shape: 3 shape: 4 data: "));
  EXPECT_EQ(first("--seed 1"), one);
  EXPECT_NE(first("--seed 2"), one);
  EXPECT_THAT(first("--type fp16"), HasSubstr("DATA_TYPE_FLOAT16 shape: 3 shape: 4"));
}

TEST_F(OwnDataTest, ShapeIsOfEveryInputOrMxNxK) {
  ListSoftmaxAndMatmul();
  ASSERT_EQ(Warpcall("run matmul --shape 2x3x4 --attribute transpose_b=true").exit_status, 0);
  EXPECT_THAT(execute_.TakeText(),
              AllOf(HasSubstr("shape: 2 shape: 4 data:"), HasSubstr("shape: 3 shape: 4 data:")));
}

TEST_F(OwnDataTest, InputsMayStandBehindTheKernel) {
  ASSERT_EQ(Warpcall(absl::StrCat("run gelu ", x_, " --device cpu ", x_)).exit_status, 0);
  EXPECT_EQ(execute_.Take().at(0).inputs_size(), 2);
  EXPECT_THAT(Lines(Warpcall(absl::StrCat("fused 'x0 + x1' ", x_, " ", x_)).err), ElementsAre());
  EXPECT_EQ(execute_.Take().at(0).inputs_size(), 2);
}

TEST_F(OwnDataTest, InputsComeFromOnePlaceOnly) {
  ExpectUsageErrors({
      {"run gelu", "inputs are required: files (--input FILE, or just FILE) or random ones"},
      {absl::StrCat("run gelu --shape 4 ", x_), "not from both"},
      {absl::StrCat("run gelu ", x_, " --input ", x_), "excludes"},
      {"run gelu --shape '{2,4}'", "has 2 points; only one is taken here"},
      {"run gelu - -", "only one input can be -"},
      {absl::StrCat("run gelu ", x_, " --output ", y_, " --output ", y_), "is given twice"},
      {absl::StrCat("run gelu ", x_, " --output - --json"), "both want stdout"},
      {"run gelu --shape 4 --cast f32", "excludes"},
  });
  EXPECT_EQ(server_.executes(), 0);
}

TEST_F(OwnDataTest, Float64IsRefusedNamingWhatToDoAndCastDoesIt) {
  const std::string in = Store<double>("<f8", 1.0 / 3, -2);
  ExpectUsageErrors({{"run gelu " + in, "elements are '<f8' (float64)"},
                     {"run gelu " + in, "--cast float32 converts them"}});
  const ProgramResult run = Warpcall(absl::StrCat("run gelu --cast fp32 ", in, " --output ", y_));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, absl::StrCat("warpcall: ", in, ": float64 converted to float32\n"));
  EXPECT_THAT(client::ReadNpy(y_)->ToFloats(), ElementsAre(1.0f / 3, -2));
}

TEST_F(OwnDataTest, CastLeavesWhatHasTheTypeAndNamesAMismatch) {
  EXPECT_EQ(Warpcall(absl::StrCat("run gelu --cast float32 ", x_)).err, "");
  ExpectUsageErrors({{absl::StrCat("run gelu --type half ", x_),
                      "--type float16, but the file has float32; --cast float16 converts it"}});
  execute_.Take();
  const std::string in = Store<int64_t>("<i8", 7, -3);
  ASSERT_EQ(Warpcall(absl::StrCat("run gelu --cast bf16 ", in)).exit_status, 0);
  EXPECT_THAT(execute_.TakeText(), HasSubstr("DATA_TYPE_BFLOAT16 shape: 2 data: \"\\340@@\\300\""));
}

TEST_F(OwnDataTest, DashIsStdinAndStdout) {
  const std::string program = testing::ProgramPath("warpcall");
  const ProgramResult run =
      Shell(absl::StrCat("{ cat '", x_, "' | '", program, "' run gelu - --output - | '", program,
                         "' run gelu --input - --output '", y_, "' --json; }"));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_TRUE(json::accept(run.out));
  EXPECT_THAT(client::ReadNpy(y_)->ToFloats(), ElementsAre(1, 2, 3, 4));
  // Reads a file from which a part has been read already.
  EXPECT_EQ(Warpcall(absl::StrCat("run gelu - <", x_)).exit_status, 0);
  ExpectUsageErrors({{absl::StrCat("run gelu - <", folder_.Path(".")), "stdin: a folder"},
                     {"run gelu - </dev/null", "stdin: the file ends"}});
}

// Opened a second time it would be written from its beginning by both.
TEST_F(OwnDataTest, WhatElseNamesStdoutIsStdout) {
  const std::string line = absl::StrCat("run gelu ", x_, " --output ");
  ASSERT_EQ(Warpcall(absl::StrCat(line, "- >", y_)).exit_status, 0);
  const std::string array = testing::ReadFile(y_);
  for (const char* const name : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    const std::string to = folder_.Path("to");
    EXPECT_EQ(Warpcall(absl::StrCat(line, name, " >", to)).exit_status, 0);
    EXPECT_EQ(testing::ReadFile(to), array) << name;
    ExpectUsageErrors({{absl::StrCat(line, name, " --json"), "both want stdout"}});
  }
}

TEST_F(OwnDataTest, BFloat16ThatItWroteItReadsWithoutAFlag) {
  const std::string bf = folder_.Path("bf.npy");
  ASSERT_TRUE(client::WriteNpy(bf, Tensor::Borrow(DataType::kBFloat16, {2}, {"abcd", 4})).ok());
  ASSERT_EQ(Warpcall(absl::StrCat("run gelu ", bf, " --output ", y_)).exit_status, 0);
  EXPECT_THAT(execute_.TakeText(), HasSubstr("DATA_TYPE_BFLOAT16 shape: 2 data: \"abcd\""));
  ASSERT_EQ(Warpcall(absl::StrCat("run gelu ", y_)).exit_status, 0);
  EXPECT_THAT(execute_.TakeText(), HasSubstr("DATA_TYPE_BFLOAT16 shape: 2 data: \"abcd\""));
  EXPECT_THAT(ReadFile(y_), HasSubstr("'descr': '<V2'"));  // as ml_dtypes writes it
}

TEST_F(OwnDataTest, WhatCannotBeWrittenIsFoundBeforeAnythingIsSent) {
  std::filesystem::create_directory(folder_.Path("folder"));
  std::filesystem::create_symlink("nowhere/y.npy", folder_.Path("lost"));
  const std::string line = absl::StrCat("run gelu --shape 4 --output ", folder_.Path(""));
  ExpectUsageErrors({{"run gelu --shape 4 --output ''", "--output is empty"},
                     {line + "folder", "folder: Is a directory"},
                     {line + "lost", "lost: No such file or directory"}});
  EXPECT_EQ(server_.list_kernels() + server_.executes(), 0);
}

TEST_F(OwnDataTest, ALinkToNothingIsFollowed) {
  const std::string link = folder_.Path("link");
  std::filesystem::create_symlink("y.npy", link);
  ASSERT_EQ(Warpcall(absl::StrCat("run gelu ", x_, " --output ", link)).exit_status, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(client::ReadNpy(y_)->ToFloats(), ElementsAre(1, 2, 3, 4));
}

// The signal comes as soon as the incomplete file is seen. Its 64 MiB take a while; the first such
// file, which only tries if it can be made, does not.
TEST_F(OwnDataTest, ASignalTakesAnIncompleteFileWithIt) {
  const std::string program = testing::ProgramPath("warpcall");
  for (const auto& [name, number] : {std::pair("INT", 2), {"TERM", 15}, {"HUP", 1}}) {
    const std::string script = absl::StrCat(
        "cd ", folder_.Path(""), "; env --default-signal=", name, " '", program,
        "' run gelu --shape 16x1048576 --output y.npy & "
        "until { set -- y.npy.*-2.part; [ -e $1 ]; } || ! kill -0 $!; do :; done; kill -",
        name, " $!; wait $!; exit $?");
    int exit_status = 0;  // 0: the command was done first
    EXPECT_TRUE(Eventually([&] { return (exit_status = Shell(script).exit_status) != 0; }));
    EXPECT_EQ(exit_status, 128 + number) << name;
    EXPECT_THAT(folder_.Names(), ::testing::Each(Not(HasSubstr(".part")))) << name;
  }
}

TEST_F(OwnDataTest, OverTheMessageLimitItSaysStream) {
  execute_.Refuse(
      absl::ResourceExhaustedError("the message has 9 bytes; the limit is 8 "
                                   "(max_message_mib) of tensor data"));
  ExpectRefused(absl::StrCat("run gelu ", x_),
                "RESOURCE_EXHAUSTED: the message has 9 bytes; the limit is 8 (max_message_mib) of "
                "tensor data; --stream takes tensors of any size\n");
  execute_.Refuse(absl::ResourceExhaustedError("the queue is full"));
  ExpectRefused(absl::StrCat("run gelu ", x_), "RESOURCE_EXHAUSTED: the queue is full\n");
}

}  // namespace
}  // namespace warpcall::cli
