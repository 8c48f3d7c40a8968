// Compiles pushed source in confined processes of the test's own: by a stand-in for the compiler,
// and by NVRTC where it is there.
#include "server/compile/foreign_compiler.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/landlock.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/compiled/program.h"
#include "server/process/answer.h"
#include "server/process/confinement.h"
#include "tests/kernels/elf_file.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

using compiled::CudaCode;
using compiled::CudaSource;
using compiled::ForeignSource;
using compiled::IsCompileError;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class ForeignCompilerTest : public ::testing::Test {
 protected:
  using Serve = std::function<void(const process::Channel& channel)>;

  void SetUp() override {
    if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
      GTEST_SKIP() << "this kernel has no Landlock";
  }
  ~ForeignCompilerTest() override {
    for (const pid_t pid : started_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  // Starts the process by fork, which a program of one thread may do.
  absl::StatusOr<std::unique_ptr<process::Child>> Start(const Serve& serve) {
    auto sockets = process::MakeSockets(SOCK_STREAM);
    EXPECT_TRUE(sockets.ok());
    const pid_t pid = fork();
    if (pid == 0) {
      close(sockets->first.get());
      serve(process::Channel(std::move(sockets->second)));
      _exit(0);
    }
    started_.push_back(pid);
    return std::make_unique<process::Child>(process::Channel(std::move(sockets->first)));
  }

  absl::StatusOr<CudaCode> Compile(const ForeignSource& source, const Serve& serve) {
    return CompileForeign(source, {.cuda_include = cuda_include_,
                                   .deadline_ns = deadline_ns_,
                                   .start = [&] { return Start(serve); }});
  }

  // Compiles by `compile` in a process that is confined as the server's are.
  absl::StatusOr<CudaCode> CompileBy(const compiled::CompileFunction& compile,
                                     const ForeignSource& source) {
    return Compile(source, [&](const process::Channel& channel) {
      const process::RoleFlags flags = {.foreign = true, .cuda_include = cuda_include_};
      ServeForeignCompilation(channel, ConfineCompiler(flags, limits_), compile, limits_)
          .IgnoreError();
    });
  }

  std::string cuda_include_;
  int64_t deadline_ns_ = kNoDeadline;
  ForeignLimits limits_;
  std::vector<pid_t> started_;
};

// ---- A stand-in for the compiler

absl::StatusOr<CudaCode> StandIn(const CudaSource& source) {
  if (absl::StrContains(source.text, "abort")) std::abort();
  if (absl::StrContains(source.text, "end")) _exit(1);
  if (absl::StrContains(source.text, "loop"))
    for (volatile bool on = true; on;) {
    }
  if (absl::StrContains(source.text, "wait")) sleep(1000);
  if (absl::StrContains(source.text, "grow"))
    for (;;)
      if (std::malloc(size_t{64} << 20) == nullptr) std::abort();
  if (absl::StrContains(source.text, "wrong"))
    return compiled::AsCompileError(absl::InternalError("x.cu(1): error: \x1b[31mwrong\xff"));
  if (absl::StrContains(source.text, "lacking")) return absl::UnimplementedError("no compiler");
  return CudaCode{.cubin = testing::ElfFile({{"f", true}}),
                  .ptx = source.with_ptx ? "// PTX" : "",
                  .log = "a warning\x1b[0m",
                  .kernels = source.entries};
}

TEST_F(ForeignCompilerTest, TheResultComesFromAProcessThatThenEnds) {
  const ForeignSource source = {
      .name = "mine", .source = "fine", .entries = {"f"}, .arch = "sm_90a", .with_ptx = true};
  const auto code = CompileBy(StandIn, source);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(code->cubin, testing::ElfFile({{"f", true}}));
  EXPECT_EQ(code->ptx, "// PTX");
  EXPECT_EQ(code->log, "a warning[0m");
  EXPECT_EQ(code->kernels, std::vector<std::string>{"f"});
  int status = 1;
  EXPECT_EQ(waitpid(started_[0], &status, 0), started_[0]);
  EXPECT_EQ(status, 0);
  started_.clear();
}

// Looks at what it has of the machine, and tells it by its log.
absl::StatusOr<CudaCode> Looks(const CudaSource& source) {
  const auto opens = [](const std::string& path) {
    return open(path.c_str(), O_RDONLY) >= 0 ? "opens " : "refused ";
  };
  const char* const secret = getenv("WARPCALL_TEST_SECRET");
  const char* const folder = source.options.front().c_str() + strlen("--include-path=");
  return CudaCode{.cubin = testing::ElfFile({}),
                  .log = absl::StrCat(opens(absl::StrCat(folder, "/cuda.h")), opens("/etc/passwd"),
                                      secret == nullptr ? "empty " : secret,
                                      write(STDERR_FILENO, "forged\n", 7))};
}

TEST_F(ForeignCompilerTest, TheProcessHasTheHeadersAndNothingElse) {
  setenv("WARPCALL_TEST_SECRET", "hunter2", 1);
  const testing::TempFolder folder;
  cuda_include_ = folder.Path(".");
  std::ofstream(folder.Path("cuda.h")) << "text";
  ::testing::internal::CaptureStderr();
  const auto code = CompileBy(Looks, {});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(code->log, "opens refused empty 7");
}

TEST_F(ForeignCompilerTest, ErrorsSayWhoseTheyAre) {
  const auto wrong = CompileBy(StandIn, {.source = "wrong"});
  EXPECT_TRUE(IsCompileError(wrong.status()));
  EXPECT_EQ(Message(wrong.status()), "x.cu(1): error: [31mwrong\uFFFD");
  const auto lacking = CompileBy(StandIn, {.source = "lacking"});
  EXPECT_EQ(lacking.status(), absl::UnimplementedError("no compiler"));
  const auto none =
      CompileForeign({}, {.start = [] { return absl::ResourceExhaustedError("none"); }});
  EXPECT_EQ(none.status(), absl::ResourceExhaustedError("none"));
  const auto free = Compile({.source = "fine"}, [](const process::Channel& channel) {
    ServeForeignCompilation(channel, absl::UnimplementedError("no Landlock"), StandIn)
        .IgnoreError();
  });
  EXPECT_TRUE(absl::IsUnimplemented(free.status())) << free.status();
  EXPECT_THAT(Message(free.status()), HasSubstr("can't be compiled here: no Landlock"));
}

TEST_F(ForeignCompilerTest, ACrashIsTheSources) {
  const auto crashed = CompileBy(StandIn, {.source = "abort"});
  EXPECT_TRUE(IsCompileError(crashed.status()));
  EXPECT_EQ(Message(crashed.status()), "the compiler crashed on this source");
  const auto ended = CompileBy(StandIn, {.source = "end"});
  EXPECT_TRUE(IsCompileError(ended.status()));
  EXPECT_THAT(Message(ended.status()), HasSubstr("process ended"));
}

TEST_F(ForeignCompilerTest, LimitsEndIt) {
  limits_.cpu_seconds = 1;
  const auto looped = CompileBy(StandIn, {.source = "loop"});
  EXPECT_TRUE(IsCompileError(looped.status()));
  EXPECT_EQ(Message(looped.status()), "compiling took more than 1 s of CPU time");
  if (!process::kLimitsMemory) GTEST_SKIP() << "a sanitizer reserves more memory than the limit";
  const auto grown = CompileBy(StandIn, {.source = "grow"});
  EXPECT_TRUE(IsCompileError(grown.status()));
  EXPECT_EQ(Message(grown.status()), "compiling took more than 4096 MiB of memory");
}

TEST_F(ForeignCompilerTest, TheDeadlineIsNoFaultOfTheSource) {
  deadline_ns_ = MonotonicNs() + 20'000'000;
  const auto waited = CompileBy(StandIn, {.source = "wait"});
  EXPECT_FALSE(IsCompileError(waited.status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(waited.status())) << waited.status();
  EXPECT_THAT(Message(waited.status()),
              AllOf(StartsWith("compiling was stopped after "), EndsWith("s")));
}

TEST_F(ForeignCompilerTest, AProcessThatLiesIsOurFault) {
  const auto answered = [&](const CudaCode& code) {
    return Compile({.entries = {"f"}}, [&](const process::Channel& channel) {
      channel.Receive(1 << 20).status().IgnoreError();
      process::SendAnswer(channel, {ToBytes(code)}).IgnoreError();
    });
  };
  EXPECT_TRUE(answered({.kernels = {"f"}}).ok());
  EXPECT_EQ(answered({.ptx = "\x1bp\xff", .log = "\x1bl\xff", .kernels = {"f"}})->log, "l\uFFFD");
  EXPECT_EQ(answered({.ptx = "\x1bp", .kernels = {"f"}})->ptx, "p");
  for (const std::vector<std::string>& kernels :
       std::vector<std::vector<std::string>>{{}, {"f", "g"}, {""}, {"f\n"}, {"\x1b"}}) {
    const auto lie = answered({.kernels = kernels});
    EXPECT_TRUE(absl::IsInternal(lie.status())) << lie.status();
    EXPECT_FALSE(IsCompileError(lie.status()));
  }
  const auto late =
      CompileBy([](const CudaSource&) { return absl::DeadlineExceededError("too late"); },
                {.entries = {"f"}});
  EXPECT_EQ(late.status(), absl::InternalError("too late"));
  const auto garbage = Compile({}, [](const process::Channel& channel) {
    channel.Receive(1 << 20).status().IgnoreError();
    channel.Send("x", "y").IgnoreError();
  });
  EXPECT_TRUE(absl::IsInternal(garbage.status())) << garbage.status();
  EXPECT_FALSE(IsCompileError(garbage.status()));
}

// ---- NVRTC

constexpr char kHeaders[] = "/usr/local/cuda/include";

class ForeignNvrtcTest : public ForeignCompilerTest {
 protected:
  void SetUp() override {
    ForeignCompilerTest::SetUp();
    if (!compiled::LoadNvrtc().ok()) GTEST_SKIP() << compiled::LoadNvrtc().status();
    if (std::filesystem::exists(absl::StrCat(kHeaders, "/cuda_fp16.h"))) cuda_include_ = kHeaders;
  }

  absl::StatusOr<CudaCode> Nvrtc(ForeignSource source) {
    if (source.name.empty()) source.name = "mine";
    source.arch = "sm_90a";
    return CompileBy(compiled::CompileByNvrtc, source);
  }

  // The log of a source that is refused.
  std::string Log(const std::string& text) {
    const auto code = Nvrtc({.source = text});
    EXPECT_TRUE(IsCompileError(code.status())) << code.status();
    return Message(code.status());
  }
};

TEST_F(ForeignNvrtcTest, ErrorsHaveTheAuthorsLinesAndWarningsAreKept) {
  EXPECT_THAT(Log("\n\n__global__ void f() { x = 1; }\n"),
              StartsWith("mine.cu(3): error: identifier \"x\" is undefined\n"));
  const auto warned = Nvrtc({.source = "\n__global__ void f() { int unused; }\n"});
  ASSERT_TRUE(warned.ok()) << warned.status();
  EXPECT_THAT(warned->log, StartsWith("mine.cu(2): warning"));
  EXPECT_THAT(Message(Nvrtc({.source = "__global__ void f() {}", .entries = {"g"}}).status()),
              StartsWith("error: each entry must name one kernel of the source: g\n"));
}

constexpr char kTwoKernels[] = R"(
extern "C" __global__ void plain(T* y) { y[threadIdx.x] = T(1); }
template <typename U> __global__ void shift(U* y) { y[threadIdx.x] = U(2); }
#if !defined(WARPCALL_T_FLOAT32) && !defined(WARPCALL_T_FLOAT16) && !defined(WARPCALL_T_BFLOAT16)
#error no type
#endif
)";

TEST_F(ForeignNvrtcTest, EntriesOfEachTypeAreFound) {
  const std::pair<DataType, const char*> cases[] = {
      {DataType::kFloat32, "_Z5shiftIfEvPT_"},
      {DataType::kFloat16, "_Z5shiftI6__halfEvPT_"},
      {DataType::kBFloat16, "_Z5shiftI13__nv_bfloat16EvPT_"}};
  for (const auto& [type, shift] : cases) {
    if (type != DataType::kFloat32 && cuda_include_.empty())
      GTEST_SKIP() << kHeaders << " has no cuda_fp16.h";
    const auto code = Nvrtc({.source = kTwoKernels,
                             .options = {"-std=c++20", "--use_fast_math"},
                             .entries = {"plain", "shift<T>"},
                             .data_type = type,
                             .with_ptx = true});
    ASSERT_TRUE(code.ok()) << code.status();
    EXPECT_EQ(code->kernels, (std::vector<std::string>{"plain", shift}));
    EXPECT_THAT(code->ptx, HasSubstr(absl::StrCat(".entry ", shift, "(")));
    EXPECT_EQ(code->log, "");
  }
}

TEST_F(ForeignNvrtcTest, HeadersOfTheToolkitAreThereOrTheirAbsenceIsSaid) {
  cuda_include_.clear();
  EXPECT_THAT(Log("#include <cuda_fp16.h>\n"), HasSubstr("no headers of CUDA (--cuda_include, "));
  if (!std::filesystem::exists(absl::StrCat(kHeaders, "/mma.h")))
    GTEST_SKIP() << kHeaders << " has no mma.h";
  cuda_include_ = kHeaders;
  const auto code = Nvrtc({.source = "#include <mma.h>\n#include <cuda_pipeline.h>\n"
                                     "__global__ void f() {}",
                           .entries = {"f"}});
  EXPECT_TRUE(code.ok()) << code.status();
}

// Neither the text of a file comes back nor whether there is one.
TEST_F(ForeignNvrtcTest, FilesAreNotToldOf) {
  const testing::TempFolder folder;
  std::ofstream(folder.Path("secret")) << "hunter2 hunter2\n";
  ASSERT_TRUE(std::filesystem::create_directory(folder.Path("folder")));
  const std::string up = "../../../../../../../../../../..";
  for (const std::string& prefix : {std::string(), up, absl::StrCat("x/", up)}) {
    const auto log_for = [&](const std::string& form, const std::string& path) {
      const std::string log = Log(absl::StrReplaceAll(form, {{"PATH", prefix + path}}));
      EXPECT_THAT(log, Not(AnyOf(HasSubstr("hunter"), HasSubstr("root:"))));
      return absl::StrReplaceAll(log, {{path, "PATH"}});
    };
    for (const char* const form :
         {"#include \"PATH\"\n", "#include <PATH>\n", "const char x[] = {\n#embed \"PATH\"\n};",
          "#if __has_include(\"PATH\")\n#error yes\n#else\n#error no\n#endif\n",
          "#if __has_include(<PATH>)\n#error yes\n#else\n#error no\n#endif\n"}) {
      const std::string none = log_for(form, folder.Path("nofile"));
      EXPECT_EQ(log_for(form, folder.Path("secret")), none);
      EXPECT_EQ(log_for(form, folder.Path("folder")), none);
      EXPECT_EQ(log_for(form, folder.Path("secret/x")), log_for(form, folder.Path("nofile/x")));
    }
    log_for("#include \"PATH\"\n", "/etc/passwd");
    log_for("#include \"PATH\"\n", "/proc/self/environ");
  }
}

TEST_F(ForeignNvrtcTest, SourceThatTakesForeverOrAllMemoryIsStopped) {
  limits_.cpu_seconds = 1;
  EXPECT_EQ(Log(R"(
template <int A, int B> struct F {
  static constexpr int v = F<A - 1, B * 2>::v + F<A - 1, B * 2 + 1>::v;
};
template <int B> struct F<0, B> { static constexpr int v = 1; };
__device__ int x = F<28, 1>::v;
)"),
            "compiling took more than 1 s of CPU time");
  if (!process::kLimitsMemory) GTEST_SKIP() << "a sanitizer reserves more memory than the limit";
  limits_ = {.address_space_bytes = int64_t{1} << 30};
  EXPECT_EQ(Log(absl::StrCat("__device__ int x = ", std::string(1'000'000, '('), "1",
                             std::string(1'000'000, ')'), ";")),
            "compiling took more than 1024 MiB of memory");
  EXPECT_THAT(Log("#define A(x) x x x x x x x x x x x x x x x x\n__device__ const char x[] = "
                  "A(A(A(A(A(A(A(\"0123456789abcdef\")))))));\n"),
              HasSubstr("out of memory"));
}

TEST_F(ForeignNvrtcTest, ControlCharactersOfTheSourceDoNotComeBack) {
  const std::string log = Log("#error a\x1b[31mb\x07\x7f\xc2\x9b\n");
  EXPECT_THAT(log, AllOf(HasSubstr("a[31mb"), Not(HasSubstr("\x1b")), Not(HasSubstr("\x07"))));
  EXPECT_THAT(log, AllOf(Not(HasSubstr("\x7f")), Not(HasSubstr("\x9b"))));
  EXPECT_THAT(Log("#error \xff\xfe\n__global__ void f( { }\n"), Not(HasSubstr("\xff")));
}

TEST_F(ForeignNvrtcTest, LargeSourceIsCompiled) {
  std::string source = "__global__ void f() {}\n";
  while (source.size() < compiled::kForeignSourceBytesMax)
    source += "// " + std::string(1000, 'x') + "\n";
  source.resize(compiled::kForeignSourceBytesMax);
  const auto code = Nvrtc({.source = source, .entries = {"f"}});
  EXPECT_TRUE(code.ok()) << code.status();
}

TEST_F(ForeignNvrtcTest, CallsThatKernelsMayNotMakeAreRefused) {
  EXPECT_THAT(Log("__global__ void f() { printf(\"x\"); }"), HasSubstr("printf is not available"));
  EXPECT_THAT(Log("__global__ void f(int** p) { *p = (int*)malloc(4); }"),
              HasSubstr("malloc and new are not available"));
  EXPECT_THAT(Log("__global__ void f(int** p) { delete *p; }"),
              HasSubstr("free and delete are not available"));
  EXPECT_THAT(Log("__global__ void f(int p) { assert(p > 1); }"),
              HasSubstr("assert is not available"));
}

}  // namespace
}  // namespace warpcall
