// What is done to pushed source before and after it is compiled, with a stand-in for the compiler.
#include "kernels/compiled/foreign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/compiled/cubin_symbols.h"
#include "kernels/compiled/program.h"
#include "tests/kernels/elf_file.h"
#include "tests/temp_folder.h"

namespace warpcall::compiled {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ElfFile;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Compiles by a stand-in that returns `result`, with headers or without.
absl::StatusOr<CudaCode> Compiled(absl::StatusOr<CudaCode> result,
                                  std::vector<std::string> options = {}) {
  return CompileAndCheck([&](const CudaSource&) { return result; },
                         {.text = "x", .options = std::move(options), .entries = {"f"}});
}

absl::Status Refusal(const std::string& log) { return AsCompileError(absl::InternalError(log)); }

TEST(ForeignSourceTest, HasItsTypeItsFileAndItsOptions) {
  const std::string constants =
      "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fffffff)\n";
  const testing::TempFolder folder;
  const ForeignSource foreign = {.name = "my-softmax",
                                 .source = "T x;\n",
                                 .options = {"-std=c++20", "-DN=3"},
                                 .entries = {"f<T>"},
                                 .data_type = DataType::kBFloat16,
                                 .arch = "sm_90a",
                                 .with_ptx = true};
  EXPECT_EQ(*ToCudaSource(foreign, folder.Path(".")),
            (CudaSource{.text = "#include <cuda_bf16.h>\n" + constants +
                                "#define WARPCALL_T_BFLOAT16 1\n"
                                "using T = __nv_bfloat16;\n#line 1 \"my-softmax.cu\"\nT x;\n",
                        .options = {absl::StrCat("--include-path=", folder.Path(".")),
                                    "--gpu-architecture=sm_90a", "-std=c++20", "-DN=3"},
                        .file = "my-softmax.cu",
                        .entries = {"f<T>"},
                        .with_ptx = true}));
  const CudaSource plain =
      *ToCudaSource({.name = "a\"\n/b", .source = "\xEF\xBB\xBFT y;", .arch = "sm_80"}, "");
  EXPECT_EQ(
      plain.text,
      constants + "#define WARPCALL_T_FLOAT32 1\nusing T = float;\n#line 1 \"a___b.cu\"\nT y;");
  EXPECT_THAT(plain.options, ElementsAre("--gpu-architecture=sm_80"));
}

TEST(ForeignSourceTest, IsRefusedWhereNoCompilerCouldTakeIt) {
  const auto half = ToCudaSource({.data_type = DataType::kFloat16}, "");
  EXPECT_TRUE(absl::IsUnimplemented(half.status())) << half.status();
  EXPECT_THAT(Message(half.status()), AllOf(HasSubstr("float16"), HasSubstr("--cuda_include")));
  EXPECT_EQ(WithMissingCompiler(half.status(), absl::OkStatus()), half.status());
  const absl::Status missing =
      WithMissingCompiler(half.status(), absl::UnimplementedError("there is no libnvrtc"));
  EXPECT_TRUE(absl::IsUnimplemented(missing));
  EXPECT_THAT(Message(missing),
              AllOf(HasSubstr("it has no compiler either"), EndsWith("there is no libnvrtc")));
  const auto zero = ToCudaSource({.source = std::string("a\nb\0c\n", 6)}, "");
  EXPECT_TRUE(IsCompileError(zero.status()));
  EXPECT_THAT(Message(zero.status()), EndsWith("a zero byte in line 2"));
  EXPECT_TRUE(ToCudaSource({.source = std::string(4 << 20, ' ')}, "").ok());
  const auto large = ToCudaSource({.source = std::string((4 << 20) + 1, ' ')}, "");
  EXPECT_TRUE(absl::IsInvalidArgument(large.status())) << large.status();
  EXPECT_THAT(Message(large.status()), AllOf(HasSubstr("4194305"), HasSubstr("4194304")));
}

TEST(ForeignCodeTest, MustNotCallWhatKernelsMayNot) {
  const std::pair<const char*, const char*> cases[] = {
      {"vprintf", "printf is not"},       {"malloc", "malloc and new"},
      {"free", "free and delete"},        {"__assertfail", "assert is not"},
      {"cudaLaunchDeviceV2", "launches"}, {"cudaGetParameterBufferV2", "launches"}};
  for (const auto& [symbol, why] : cases) {
    const auto refused = Compiled(CudaCode{.cubin = ElfFile({{"f", true}, {symbol}})});
    EXPECT_TRUE(IsCompileError(refused.status())) << symbol;
    EXPECT_THAT(Message(refused.status()),
                AllOf(HasSubstr(why), EndsWith(absl::StrCat("(the code calls ", symbol, ")"))));
    EXPECT_TRUE(Compiled(CudaCode{.cubin = ElfFile({{symbol, true}, {"my_malloc"}})}).ok());
  }
  const auto broken = Compiled(CudaCode{.cubin = "\177ELF"});
  EXPECT_TRUE(absl::IsInternal(broken.status()));
  EXPECT_FALSE(IsCompileError(broken.status()));
}

TEST(ForeignCodeTest, LogsComeOutClean) {
  const CudaCode made = {.cubin = ElfFile({}), .log = "a\x1b[31mb\a\r\n\tc\xff\xc2\x85ü\n"};
  EXPECT_EQ(Compiled(made)->log, "a[31mb\n\tc\uFFFDü\n");
  EXPECT_EQ(Message(Compiled(Refusal(made.log), {"--include-path=/"}).status()),
            "a[31mb\n\tc\uFFFDü\n");
  const auto lacking = Compiled(absl::UnimplementedError("none"));
  EXPECT_EQ(lacking.status(), absl::UnimplementedError("none"));
}

TEST(ForeignCodeTest, LogsDoNotTellWhetherAFileExists) {
  const auto log_for = [](absl::string_view reason) {
    return Message(
        Compiled(Refusal(absl::StrCat("x.cu(1): error: cannot open source file \"/a\"b\"", reason,
                                      "\n  #include \"/a\"b\"\n1 error.\n")),
                 {"--include-path=/"})
            .status());
  };
  EXPECT_EQ(log_for(""),
            "x.cu(1): error: cannot open source file \"/a\"b\"\n  #include \"/a\"b\"\n1 error.\n");
  EXPECT_EQ(log_for(": Permission denied"), log_for(""));
  EXPECT_EQ(log_for(": Not a directory"), log_for(""));
}

TEST(ForeignCodeTest, RefusalsSayWhatTheAuthorCannotKnow) {
  const std::string open = "x.cu(1): error: could not open source file \"y.h\" (no directories)";
  EXPECT_THAT(Message(Compiled(Refusal(open)).status()),
              AllOf(StartsWith(open), HasSubstr("no headers of CUDA (--cuda_include, ")));
  EXPECT_EQ(Message(Compiled(Refusal(open), {"--include-path=/y"}).status()), open);
  EXPECT_THAT(Message(Compiled(Refusal("__nv_name_map(2): error: \"f\" is undefined")).status()),
              StartsWith("error: each entry must name one kernel of the source: f\n__nv_name_map"));
  EXPECT_THAT(Message(Compiled(Refusal("x.cu(2): error: no")).status()), Not(HasSubstr("entry")));
  const std::string broken = "x.cu(2): error: expected a \";\"\n__nv_name_map(2): error: no f";
  EXPECT_THAT(
      Message(Compiled(Refusal(broken)).status()),
      AllOf(StartsWith(broken), EndsWith("each entry must name one kernel of the source: f")));
}

TEST(CleanTextTest, IsCutBetweenCharacters) {
  EXPECT_EQ(CleanText("aüb", 4), "aüb");
  EXPECT_EQ(CleanText("aüb", 2), "a");
  EXPECT_EQ(CleanText(std::string(100, '\xff'), 10), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(CleanText(std::string("a\0b\x7f", 4), 10), "ab");
  EXPECT_EQ(CleanText("\xed\xa0\x80", 100), "\uFFFD\uFFFD\uFFFD");  // a surrogate
}

TEST(CudaCodeTest, ComesBackFromItsBytesAndFromNoOthers) {
  const CudaSource source = {.text = std::string("a\0b", 3),
                             .options = {"-x", ""},
                             .file = "f.cu",
                             .entries = {"g", "h<T>"},
                             .with_ptx = true};
  EXPECT_EQ(*ParseCudaSource(ToBytes(source)), source);
  EXPECT_EQ(*ParseCudaSource(ToBytes(CudaSource{})), CudaSource{});
  const CudaCode code = {.cubin = "c", .ptx = "p", .log = "l", .kernels = {"g"}};
  const std::string bytes = ToBytes(code);
  EXPECT_EQ(*ParseCudaCode(bytes), code);
  for (size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_TRUE(absl::IsInternal(ParseCudaCode(bytes.substr(0, cut)).status())) << cut;
  EXPECT_TRUE(absl::IsInternal(ParseCudaCode(ToBytes(source)).status()));
  EXPECT_TRUE(absl::IsInternal(ParseCudaSource(bytes).status()));
}

TEST(CubinSymbolsTest, AreThoseThatTheFileDoesNotDefine) {
  EXPECT_THAT(*UndefinedSymbols(ElfFile({{"f", true}, {"vprintf"}, {"g", true}, {"free"}})),
              ElementsAre("vprintf", "free"));
  EXPECT_THAT(*UndefinedSymbols(ElfFile({{"f", true}})), ElementsAre());
}

TEST(CubinSymbolsTest, AFileThatIsCutIsRefused) {
  const std::string file = ElfFile({{"vprintf"}});
  for (size_t cut = 0; cut < file.size(); ++cut)
    EXPECT_TRUE(absl::IsInternal(UndefinedSymbols(file.substr(0, cut)).status())) << cut;
  std::string no_elf = file;
  no_elf[0] = 'E';
  EXPECT_FALSE(UndefinedSymbols(no_elf).ok());
  std::string unended = file;
  unended[unended.find(std::string("vprintf\0", 8)) + 7] = 'x';
  EXPECT_FALSE(UndefinedSymbols(unended).ok());
}

}  // namespace
}  // namespace warpcall::compiled
