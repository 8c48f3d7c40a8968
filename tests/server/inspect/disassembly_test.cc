#include "server/inspect/disassembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/inspect/tool.h"
#include "tests/temp_folder.h"

namespace warpcall::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A folder of tools that are scripts of the test's.
class DisassemblyTest : public ::testing::Test {
 protected:
  std::string AddTool(const std::string& name, const std::string& script) {
    const std::string path = folder_.Path(name);
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    EXPECT_EQ(chmod(path.c_str(), 0755), 0);
    return path;
  }
  DisassemblyOptions Options() const {
    return {.folders = {"/nowhere", folder_.Path("")}, .program = "/the/program"};
  }

  const testing::TempFolder folder_;
};

// Short form of the output of CUDA 12.8's cuobjdump: every part of a program, whichever has the
// kernel.
constexpr char kDump[] = R"(cat <<'END'
Fatbin ptx code:
================
arch = sm_90a
.version 9.0
.target sm_90a
.address_size 64
.entry _Z5otherv()
{
ret;
}
.visible .entry _Z1kv(
.param .u64 p
)
.maxntid 128, 1, 1
{
{ // callseq
}
ret;
}
.entry _Z1kvx() { ret; }
Fatbin elf code:
================
arch = sm_90a

	code for sm_90
		Function : _Z5otherv
	NOP ;
		Function : _Z1kv
	EXIT ;
		..........

Fatbin elf code:
	code for sm_80
		Function : _Z1kv
	RET ;
Fatbin ptx code:
END
echo "$@" >&3)";

TEST_F(DisassemblyTest, OfLinkedCodeItsKernelIsTaken) {
  AddTool("cuobjdump", absl::StrCat("exec 3>>'", folder_.Path("asked"), "'\n", kDump));
  const std::vector<SourceFile> files = Disassemble({"_Z1kv", {}}, Options());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "_Z1kv.ptx");
  EXPECT_EQ(files[0].language, "ptx");
  EXPECT_EQ(files[0].text,
            ".version 9.0\n.target sm_90a\n.address_size 64\n\n.visible .entry _Z1kv(\n"
            ".param .u64 p\n)\n.maxntid 128, 1, 1\n{\n{ // callseq\n}\nret;\n}\n");
  EXPECT_EQ(files[1].language, "sass");
  EXPECT_EQ(files[1].text,
            "code for sm_90\n\t\tFunction : _Z1kv\n\tEXIT ;\n\t\t..........\n\n"
            "code for sm_80\n\t\tFunction : _Z1kv\n\tRET ;\n");
  EXPECT_EQ(testing::ReadFile(folder_.Path("asked")),
            "-ptx -fun _Z1kv /the/program\n-sass -fun _Z1kv /the/program\n");
}

TEST_F(DisassemblyTest, AnImageIsReadWhole) {
  AddTool("nvdisasm", "echo $1; cat $2");
  const std::string image = std::string(300'000, 'c') + "\xC3\x28.";
  const std::vector<SourceFile> files = Disassemble({"k", image}, Options());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].name, "k.sass");
  EXPECT_EQ(files[0].text,
            "--print-code\n" + std::string(300'000, 'c') + "?(.\n");  // so that it is UTF-8
}

TEST_F(DisassemblyTest, WhatIsNotThereIsAComment) {
  EXPECT_THAT(Disassemble({"", {}}, Options()), IsEmpty());
  std::vector<SourceFile> files = Disassemble({"k", "image"}, Options());
  EXPECT_THAT(files[0].text, StartsWith("// Not shown: nvdisasm is not installed; it was looked "
                                        "for in /nowhere, "));
  AddTool("cuobjdump", "echo nothing of that name");
  files = Disassemble({"_Z1kv", {}}, Options());
  EXPECT_THAT(files[0].text, HasSubstr("-ptx finds no such code in the program"));
  AddTool("nvdisasm", "echo text; exit 3");
  files = Disassemble({"k", "image"}, Options());
  EXPECT_THAT(files[0].text, HasSubstr("nvdisasm failed\n"));
  AddTool("nvdisasm", "while :; do echo 0123456789; done");
  DisassemblyOptions options = Options();
  options.text_bytes = 1000;
  files = Disassemble({"k", "image"}, options);
  EXPECT_THAT(files[0].text, HasSubstr("prints more of it than the limit of 1000 bytes\n"));
}

absl::Status RunPath(const std::string& path, const ToolLimits& limits) {
  return RunTool({path}, limits, [](absl::string_view) { return absl::OkStatus(); });
}

// A process with children of its own has the system forget those that end.
TEST_F(DisassemblyTest, AToolsEndIsNoticedWhereTheSystemForgetsProcesses) {
  void (*const before)(int) = std::signal(SIGCHLD, SIG_IGN);
  const auto run = [](const std::string& script) {
    return RunTool({"/bin/sh", "-c", script}, {},
                   [](absl::string_view) { return absl::OkStatus(); });
  };
  EXPECT_TRUE(run("exit 0").ok());
  EXPECT_FALSE(run("exit 1").ok());
  EXPECT_EQ(std::signal(SIGCHLD, before), SIG_IGN);
}

TEST_F(DisassemblyTest, AToolHasLimits) {
  const std::string endless = AddTool("endless", "exec cat /dev/zero");
  EXPECT_EQ(RunPath(endless, {.line_bytes = 1000}),
            absl::ResourceExhaustedError(
                absl::StrCat(endless, " printed a line of more than 1000 bytes, the limit")));
  const std::string silent = AddTool("silent", "exec tail -f /dev/null");
  EXPECT_EQ(
      RunPath(silent, {.time = absl::Milliseconds(50)}),
      absl::DeadlineExceededError(absl::StrCat(silent, " took longer than the limit of 50.0 ms")));
  EXPECT_TRUE(absl::IsInternal(RunPath("/nowhere/at/all", {})));
}

TEST_F(DisassemblyTest, LinesComeOneByOneTheLastWithoutItsEndToo) {
  const std::string tool = AddTool("lines", "printf 'a\\n\\nb\\nc'");
  std::vector<std::string> lines;
  EXPECT_TRUE(RunTool({tool}, {}, [&](absl::string_view line) {
                lines.emplace_back(line);
                return absl::OkStatus();
              }).ok());
  EXPECT_THAT(lines, ElementsAre("a", "", "b", "c"));
}

TEST(ThisProgramTest, IsAFileThatOtherProcessesRead) {
  EXPECT_TRUE(RunTool({"/usr/bin/head", "-c4", ThisProgram()}, {}, [](absl::string_view line) {
                EXPECT_EQ(line, "\x7F\x45LF");
                return absl::OkStatus();
              }).ok());
}

TEST(ToolFoldersTest, EndWithCudasOwn) {
  EXPECT_THAT(ToolFolders(), ::testing::Contains("/usr/local/cuda/bin"));
}

}  // namespace
}  // namespace warpcall::inspect
