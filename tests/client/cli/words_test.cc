// Texts that `warpcall` prints: errors, help, and completions for a shell.
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "tests/client/cli/cli_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

using WordsTest = CliTest;

// ---- stdout
// --------------------------------------------------------------------------------------

TEST_F(WordsTest, AFullOrClosedStdoutIsAnErrorWithAStatus) {
  for (const std::string& command :
       {std::string("kernels"), std::string("devices --json"), std::string("health"),
        std::string("--help"), std::string("version"), std::string("completion bash"),
        absl::StrCat("run gelu ", x_), absl::StrCat("run gelu ", x_, " --output -")}) {
    const ProgramResult full = Warpcall(command + " >/dev/full");
    EXPECT_EQ(full.exit_status, 1) << command;
    EXPECT_THAT(full.err, AllOf(HasSubstr("stdout"), HasSubstr("No space left on device")));
    const ProgramResult closed = Warpcall(command + " >&-");
    EXPECT_EQ(closed.exit_status, 1) << command;
    EXPECT_THAT(closed.err, AllOf(HasSubstr("stdout"), HasSubstr("Bad file descriptor")));
  }
}

// Output larger than stdio's buffer fails long before the end.
TEST_F(WordsTest, TheCauseIsThatOfTheFirstWriteThatFailed) {
  server_.AnswerListKernels([](v1::ListKernelsResponse* response) {
    for (int i = 0; i < 1000; ++i) response->add_kernels()->set_name(absl::StrCat("kernel_", i));
    return absl::OkStatus();
  });
  for (const char* command : {"kernels", "kernels --json"}) {
    EXPECT_GT(Warpcall(command).out.size(), 10'000u);
    EXPECT_THAT(Warpcall(absl::StrCat(command, " >/dev/full")).err,
                AllOf(HasSubstr("can't write to stdout"), HasSubstr("No space left on device")));
    EXPECT_THAT(Warpcall(absl::StrCat(command, " >&-")).err, HasSubstr("Bad file descriptor"));
    EXPECT_EQ(Warpcall(absl::StrCat(command, " | head -c 1 >/dev/null")).err, "");
  }
}

// A terminal would obey control characters that a server sends.
TEST_F(WordsTest, ControlCharactersOfAServerAreWrittenOut) {
  server_.AnswerListKernels([](v1::ListKernelsResponse* response) {
    v1::KernelInfo* kernel = response->add_kernels();
    kernel->set_name("gelu");
    kernel->set_summary("clears \x1b[2J the screen");
    kernel->add_implementations()->set_summary(
        "rings \x07, \xC2\x9B"
        "2J");
    return absl::OkStatus();
  });
  execute_.Refuse(absl::InvalidArgumentError("red: \x1b[31m"));
  EXPECT_THAT(Warpcall("kernels").out, AllOf(HasSubstr("clears \\x1b[2J the screen"),
                                             HasSubstr("rings \\x07, \\xc2\\x9b2J")));
  ExpectRefused(absl::StrCat("run gelu ", x_), "INVALID_ARGUMENT: red: \\x1b[31m\n");
}

// Nor can a server write a line that looks like the command's own.
TEST_F(WordsTest, AServersTextStaysOnItsLine) {
  const std::string forged = "x\r\nOK: fine\u202E";
  const std::string shown = "x\\x0d\\x0aOK: fine\\xe2\\x80\\xae";
  server_.AnswerServerInfo([&](v1::ServerInfoResponse* response) {
    response->set_version(forged);
    return absl::OkStatus();
  });
  EXPECT_THAT(Warpcall("version").out, HasSubstr("warpcalld " + shown));
  execute_.Set([&](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    EchoInputs(request, response);
    response->set_implementation(forged);
    return FakeAnswer{};
  });
  EXPECT_THAT(Warpcall("run gelu " + x_).out, HasSubstr(shown));
  execute_.Refuse(absl::InternalError(forged));
  ExpectRefused("run gelu " + x_, absl::StrCat("INTERNAL: ", shown, "\n"));
  EXPECT_THAT(Warpcall("--verbose run gelu " + x_).err, Not(HasSubstr("\nOK")));
}

// Any reader of JSON gets the text back.
TEST_F(WordsTest, JsonIsAscii) {
  const std::string text = "\u202E\u009B\x7F\u00E9\U0001F600";
  server_.AnswerServerInfo([&](v1::ServerInfoResponse* response) {
    response->set_version(text);
    return absl::OkStatus();
  });
  const ProgramResult run = Warpcall("version --json");
  EXPECT_THAT(run.out, HasSubstr("\\u202e\\u009b\\u007f\\u00e9\\ud83d\\ude00"));
  EXPECT_EQ(json::parse(run.out)["server"]["version"], text);
  execute_.Refuse(absl::InternalError(text));
  const ProgramResult refused = Warpcall(absl::StrCat("run gelu ", x_, " --json"));
  EXPECT_THAT(refused.err, HasSubstr("\\u202e\\u009b\\u007f"));
  EXPECT_EQ(json::parse(refused.err)["error"]["message"], text);
}

TEST_F(WordsTest, AnAnswerWithoutOutputsIsNoSuccess) {
  execute_.Set([](const v1::ExecuteRequest&, v1::ExecuteResponse*) { return FakeAnswer{}; });
  ExpectRefused("run gelu " + x_,
                "INTERNAL: malformed response from the server: 0 outputs; a kernel has 1 to 64\n");
}

TEST_F(WordsTest, ARefusalKeepsItsStatusWhereStdoutIsFull) {
  server_.SetServing(false);
  EXPECT_EQ(Warpcall("health >/dev/full").exit_status, 1);
  EXPECT_EQ(Warpcall("fly >/dev/full").exit_status, 2);
  // A command that prints nothing cannot fail to print.
  EXPECT_EQ(Warpcall("__complete nothing_begins_so >/dev/full").exit_status, 0);
}

// A file that the program opens must not become its stdout: output would go into the file.
TEST_F(WordsTest, ClosedStreamsAreNotTakenByFilesThatAreOpenedLater) {
  const std::string y = folder_.Path("y.npy");
  const ProgramResult run =
      Warpcall(absl::StrCat("run gelu ", x_, " --output ", y, " <&- >&- 2>&-"));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_TRUE(client::ReadNpy(y).ok());
}

// ---- errors
// --------------------------------------------------------------------------------------

TEST_F(WordsTest, JsonErrorsAreJsonOnOneLineOfStderr) {
  execute_.Refuse(absl::InvalidArgumentError("axis 5 is\nout of \"range\""));
  const std::vector<std::pair<std::string, json>> kLines = {
      {absl::StrCat("run gelu ", x_),
       {{"code", "INVALID_ARGUMENT"},
        {"message", "axis 5 is\nout of \"range\""},
        {"exit_status", 1}}},
      {"fly", {{"code", "INVALID_ARGUMENT"}, {"exit_status", 2}}},
      {"run gelu none.npy", {{"code", "NOT_FOUND"}, {"exit_status", 2}}},
      {"bench nothing --shape 4", {{"code", "NOT_FOUND"}, {"exit_status", 1}}},
      {"health --server 127.0.0.1:1 --deadline 1",
       {{"code", "UNAVAILABLE"}, {"retryable", true}, {"exit_status", 1}}},
      {"kernels >/dev/full", {{"code", "RESOURCE_EXHAUSTED"}, {"exit_status", 1}}},
      {"kernels --server 127.0.0.1:0", {{"code", "INVALID_ARGUMENT"}, {"exit_status", 2}}},
  };
  for (const auto& [line, expected] : kLines) {
    const ProgramResult run = Warpcall("--json " + line);
    EXPECT_EQ(run.exit_status, expected["exit_status"]) << line;
    EXPECT_EQ(run.out, "") << line;
    EXPECT_THAT(Lines(run.err), ::testing::SizeIs(1)) << run.err;
    const json error = json::parse(run.err, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(error.is_object() && error.contains("error")) << run.err;
    for (const auto& [key, value] : expected.items()) EXPECT_EQ(error["error"][key], value);
    EXPECT_TRUE(error["error"]["message"].is_string());
  }
}

TEST_F(WordsTest, ErrorsSayWhenToTryAgainAndWhatTheLogCallsTheRequest) {
  execute_.Set([](const v1::ExecuteRequest&, v1::ExecuteResponse*) {
    return FakeAnswer{absl::ResourceExhaustedError("4 wait"), "70000", "", "warpcall-7"};
  });
  EXPECT_EQ(Warpcall(absl::StrCat("run gelu ", x_)).err,
            "RESOURCE_EXHAUSTED: 4 wait; try again in 70.0 s; the log has it as request "
            "warpcall-7\n");
  const json error = json::parse(Warpcall(absl::StrCat("--json run gelu ", x_)).err)["error"];
  EXPECT_EQ(error["retryable"], true);
  EXPECT_EQ(error["retry_after_ms"], 70000);
  EXPECT_EQ(error["request_id"], "warpcall-7");
}

TEST_F(WordsTest, MisspeltWordsOfTheCommandLineAreOneLineWithWhatWasMeant) {
  const std::vector<std::pair<std::string, std::string>> kLines = {
      {"benhc gelu", "subcommand 'benhc' of warpcall is unknown; did you mean bench?"},
      {"--jsno kernels", "option --jsno of warpcall kernels is unknown; did you mean --json?"},
      {"--deadline 1 bench gelu",
       "option --deadline belongs to warpcall bench and must follow it."},
      {"bench gelu --shpae 4",
       "option --shpae of warpcall bench is unknown; did you mean --shape?"},
      {"run gelu x.npy --implementaton=a",
       "option --implementaton of warpcall run is unknown; did you mean --implementation?"},
      {"bench gelu --shape 4 --max_noise 0", "--max-noise: "},  // _ for -
      {"run gelu --shape 4 --request-id", "--request_id"},      // - for _
      {"run gelu --shape 4 --type flaot32", "did you mean float32?"},
      {"load gelu:4 --rate 1 --arrivals posson", "did you mean poisson?"},
      {"run gelu --shape 4 --attribute aproximate=none", "did you mean approximate?"},
      {"help benhc", "did you mean bench?"},
      {"devices more", "unexpected argument 'more' for warpcall devices."},
      {"bench gelu --shape 1024x64 4096x64",
       "unexpected argument '4096x64' for warpcall bench; shapes follow --shape, and a shell "
       "expands "
       "braces that are not quoted: --shape '{1024,4096}x4096'"},
  };
  for (const auto& [line, message] : kLines) {
    const ProgramResult run = Warpcall(line);
    EXPECT_EQ(run.exit_status, 2) << line;
    EXPECT_EQ(run.out, "") << line;
    EXPECT_THAT(run.err, HasSubstr(message)) << line;
    EXPECT_THAT(Lines(run.err), ::testing::SizeIs(1)) << run.err;
  }
}

TEST_F(WordsTest, MisspeltKernelsAndFamiliesAreOneLineAndTouchNoFile) {
  const std::string kept = folder_.Path("kept");
  std::ofstream(kept) << "before";
  const std::string files = absl::StrCat(" --csv ", kept);
  execute_.Refuse(absl::NotFoundError("there is none"));
  const std::vector<std::pair<std::string, std::string>> kLines = {
      {"bench glu --shape 4 --type f32 --type bf16 --plot " + kept + ".svg" + files,
       "kernel \"glu\" is unknown; available: gelu; did you mean gelu?"},
      {"bench gelu --shape 4 --implementation libary" + files, "did you mean library?"},
      {"bench gelu --shape 4 --implementation simd_fusd" + files, "did you mean simd_fused?"},
      {"profile glu --shape 4" + files, "did you mean gelu?"},
      {"describe glu --shape 4", "did you mean gelu?"},
      {"load glu:4", "did you mean gelu?"},
      {"load gelu[implementation=cqu]:4", "did you mean cpu?"},
      {absl::StrCat("run glu ", x_, " --output ", kept), "did you mean gelu?"},
      {absl::StrCat("run gelu ", x_, " --implementation libary --output ", kept),
       "did you mean library?"},
      {"run glu --shape 4 --output " + kept, "did you mean gelu?"},
  };
  for (const auto& [line, message] : kLines) {
    const ProgramResult run = Warpcall(line);
    EXPECT_EQ(run.exit_status, 1) << line;
    EXPECT_EQ(run.out, "") << line;
    EXPECT_THAT(run.err, AllOf(StartsWith("NOT_FOUND: "), HasSubstr(message))) << line;
    EXPECT_THAT(Lines(run.err), ::testing::SizeIs(1)) << run.err;
  }
  EXPECT_EQ(ReadFile(kept), "before");
  EXPECT_THAT(folder_.Names(), ElementsAre("kept", "x.npy"));
}

TEST_F(WordsTest, WhatTheServerKnowsOfNamesItSaysItself) {
  // A family of the contract that this kernel has no row of, and a refusal that says more.
  execute_.Refuse(absl::NotFoundError("implementation \"cuda\" of gelu is unknown"));
  ExpectRefused(absl::StrCat("run gelu ", x_, " --implementation cuda"),
                "NOT_FOUND: implementation \"cuda\" of gelu is unknown\n");
}

// ---- the server's address
// ------------------------------------------------------------------------

TEST_F(WordsTest, EachWayToMissTheServerHasItsSentence) {
  const std::string gone = folder_.Path("gone.sock");
  testing::FakeServer stopped(EchoInputs);
  stopped.Stop();
  const std::vector<std::pair<std::string, std::string>> kAddresses = {
      {stopped.address(), absl::StrCat("UNAVAILABLE: no server listens on ", stopped.address(),
                                       " (connection refused): is warpcalld running there?\n")},
      {"unix:" + gone, absl::StrCat("UNAVAILABLE: there is no socket ", gone,
                                    ": is warpcalld running, with --listen=unix:", gone, "?\n")},
  };
  for (const auto& [address, message] : kAddresses)
    for (const char* command : {"health", "kernels", "run gelu --shape 4"})
      ExpectRefused(absl::StrCat(command, " --server ", address), message);
  // An invalid address is a bad command line, and the client calls nothing; a command that calls no
  // server needs no address.
  for (const char* command : {"health", "kernels", "run gelu --shape 4", "version", "load gelu:4"})
    ExpectUsageErrors({{absl::StrCat(command, " --server 127.0.0.1:99999"),
                        "INVALID_ARGUMENT: the address '127.0.0.1:99999' has the port '99999'; a "
                        "port is a number from 1 to 65535\n"}});
  EXPECT_EQ(Warpcall("help --server 127.0.0.1:99999").exit_status, 0);
  // No resolver has this name (RFC 2606); their error texts differ.
  const ProgramResult unknown = Warpcall("health --deadline 10 --server no-such-host.invalid");
  EXPECT_EQ(unknown.exit_status, 1);
  EXPECT_THAT(
      unknown.err,
      ::testing::AnyOf(StartsWith("UNAVAILABLE: the host 'no-such-host.invalid' is unknown: "),
                       StartsWith("DEADLINE_EXCEEDED: ")));
  EXPECT_THAT(Lines(unknown.err), ::testing::SizeIs(1));
}

TEST_F(WordsTest, AnAddressWithoutAPortMeans8470) {
  // An address of documentation's (RFC 5737), where nothing answers, whatever this machine has.
  const ProgramResult run = Warpcall("health --verbose --deadline 0.1 --server 203.0.113.1");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("warpcall: 203.0.113.1:8470 Check "));
}

// ---- what it says of itself
// ----------------------------------------------------------------------

TEST_F(WordsTest, HelpIsWhatTheOptionSays) {
  EXPECT_EQ(Warpcall("help").out, Warpcall("--help").out);
  EXPECT_EQ(Warpcall("help run").out, Warpcall("run --help").out);
  EXPECT_THAT(Warpcall("help run").out, AllOf(HasSubstr("warpcall run"), HasSubstr("--shape")));
  EXPECT_EQ(Warpcall("help run").exit_status, 0);
}

TEST_F(WordsTest, HelpAndTablesFit100ColumnsOrAsManyAsThereAre) {
  std::vector<std::string> lines = {"help", "kernels", "devices", "run gelu --shape 2x2"};
  for (const std::string& command : Lines(Warpcall("__complete help ''").out))
    lines.push_back("help " + command);
  EXPECT_GT(lines.size(), 12u);
  for (const size_t columns : {100, 60}) {
    for (const std::string& line : lines) {
      const std::string environment =
          columns == 100 ? "env -u COLUMNS" : absl::StrCat("env COLUMNS=", columns);
      const ProgramResult run =
          Shell(absl::StrCat(environment, " '", testing::ProgramPath("warpcall"), "' ", line));
      EXPECT_EQ(run.exit_status, 0) << line << run.err;
      for (const std::string& printed : Lines(run.out))
        EXPECT_LE(printed.size(), columns) << line << "\n" << run.out;
    }
  }
}

TEST_F(WordsTest, VersionIsTheClientsWhateverBecomesOfTheServers) {
  const std::string version = Lines(Warpcall("--version").out).at(0);
  const std::string too_old =
      absl::StrCat("the server at ", server_.address(), " is too old to say its version");
  EXPECT_THAT(Lines(Warpcall("version").out), ElementsAre("warpcall " + version, too_old));
  EXPECT_EQ(WarpcallJson("version"),
            (json{{"client", {{"version", version}}},
                  {"server", {{"address", server_.address()}, {"error", too_old}}}}));
  server_.Stop();
  const ProgramResult run = Warpcall("version");
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_THAT(Lines(run.out),
              ElementsAre("warpcall " + version,
                          StartsWith(absl::StrCat("no server at ", server_.address(), ": "))));
}

TEST_F(WordsTest, VersionSaysWhyTheServerRefusesToSayIts) {
  server_.AnswerServerInfo(
      [](v1::ServerInfoResponse*) { return absl::UnauthenticatedError("unknown token"); });
  const std::string refused =
      absl::StrCat("the server at ", server_.address(),
                   " refuses to say its version: UNAUTHENTICATED: unknown token");
  EXPECT_EQ(WarpcallJson("version")["server"],
            (json{{"address", server_.address()}, {"error", refused}}));
  const ProgramResult run = Warpcall("version");
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_EQ(Lines(run.out).at(1), refused);
}

TEST_F(WordsTest, VerboseSaysWhatIsSentAndColoursAreForTerminals) {
  const ProgramResult run =
      Warpcall(absl::StrCat("run gelu ", x_, " --attribute axis=-1 --verbose"));
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("asking " + server_.address() + " for gelu"),
                    HasSubstr("  input float32 2x2, 16 B"), HasSubstr("  attribute axis=-1"),
                    HasSubstr(server_.address() + " ListKernels sent 0 B"),
                    HasSubstr(server_.address() + " Execute sent ")));
  EXPECT_THAT(run.out + run.err, Not(HasSubstr("\x1b")));
  EXPECT_EQ(Warpcall(absl::StrCat("run gelu ", x_)).err, "");
}

// ---- completion
// ----------------------------------------------------------------------------------

// A busy server may answer too late, and then there are no names.
template <typename Complete>
bool Becomes(const Complete& complete, const std::string& words,
             const std::vector<std::string>& names) {
  return Eventually([&] { return complete(words) == names; });
}

TEST_F(WordsTest, CompletionKnowsCommandsOptionsAndTheServersNames) {
  const auto complete = [&](const std::string& words) {
    return Lines(Warpcall("__complete " + words).out);
  };
  EXPECT_THAT(complete("be"), ElementsAre("bench"));
  EXPECT_TRUE(Becomes(complete, "run ''", {"gelu"}));
  EXPECT_TRUE(Becomes(complete, "run gelu --implementation ''",
                      {"cpu", "failed", "library", "simd_fused"}));
  EXPECT_TRUE(Becomes(complete, "run gelu --attribute a", {"approximate=", "axis="}));
  EXPECT_TRUE(Becomes(complete, "run gelu --device ''", {"cpu"}));
  EXPECT_THAT(complete("run gelu --type ''"), ElementsAre("bfloat16", "float16", "float32"));
  EXPECT_THAT(complete("completion ''"), ElementsAre("bash", "fish", "zsh"));
  EXPECT_THAT(complete("run --sh"), ElementsAre("--shape"));
  EXPECT_THAT(complete("run gelu --output ''"), ElementsAre());
  EXPECT_THAT(complete("graph --step"), ElementsAre("--step-times"));
  EXPECT_THAT(complete("graph --input ''"), ElementsAre());
  EXPECT_TRUE(Becomes(
      complete, "run gelu --attribute approximate=", {"approximate=none", "approximate=tanh"}));
  EXPECT_TRUE(Becomes(complete, "run gelu --implementation=s", {"--implementation=simd_fused"}));
  EXPECT_THAT(complete("run --server=127.0.0.1:1 ''"), ElementsAre());
  server_.Stop();
  EXPECT_THAT(complete("run ''"), ElementsAre());
  EXPECT_THAT(complete("be"), ElementsAre("bench"));
}

TEST_F(WordsTest, BashCompletesByTheScript) {
  const std::string warpcall = testing::ProgramPath("warpcall");
  std::ofstream(folder_.Path("complete.sh"))
      << "source <('" << warpcall << "' completion bash) || exit 1\n"
      << "COMP_LINE=$1; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1))\n"
      << "_warpcall && printf '%s\\n' \"${COMPREPLY[@]}\"\n";
  // Completes as bash calls it: with the line, and its words, which end at ':' and '=' as well.
  const auto complete = [&](const std::string& line) {
    const std::string words = absl::StrReplaceAll(line, {{":", " : "}, {"=", " = "}});
    return Lines(Shell(absl::StrCat("{ bash '", folder_.Path("complete.sh"), "' \"", warpcall, " ",
                                    line, "\" '", warpcall, "' ", words,
                                    absl::EndsWith(line, " ") ? " ''" : "", "; }"))
                     .out);
  };
  EXPECT_THAT(complete("pro"), ElementsAre("profile"));
  EXPECT_TRUE(Becomes(complete, "run ge", {"gelu"}));
  EXPECT_THAT(complete("run gelu --"), IsSupersetOf({"--shape", "--json", "--output"}));
  EXPECT_THAT(complete("run gelu x"), ElementsAre());
  // Only the text behind the last end of a word is replaced.
  EXPECT_THAT(complete("run --type=bf"), ElementsAre("bfloat16"));
  EXPECT_TRUE(Becomes(complete, "run gelu --attribute approximate=", {"none", "tanh"}));
  EXPECT_TRUE(Becomes(complete, "run gelu --attribute approximate=n", {"none"}));
  for (const char* server : {"--server ", "--server="})
    EXPECT_TRUE(Becomes(complete, absl::StrCat(server, server_.address(), " run ge"), {"gelu"}));
  const std::string socket = "unix:" + folder_.Path("s");
  const testing::FakeServer other(EchoInputs, socket);
  EXPECT_TRUE(Becomes(complete, absl::StrCat("--server ", socket, " run ge"), {"gelu"}));
  EXPECT_THAT(complete(absl::StrCat("--server unix:/nowhere run ge")), ElementsAre());
  EXPECT_THAT(complete("--server : run --implem"), ElementsAre("--implementation"));
}

TEST_F(WordsTest, ZshCompletesByTheScript) {
  if (RunProgram("command -v zsh").exit_status != 0) GTEST_SKIP() << "there is no zsh";
  const std::string warpcall = testing::ProgramPath("warpcall");
  std::ofstream(folder_.Path("complete.zsh"))
      << "compdef() { defined=$2 }; compadd() { shift; print -l -- \"$@\" }; _files() { print "
         "files }\n"
      << "source <('" << warpcall << "' completion zsh)\n"
      << "[[ $defined == warpcall ]] || exit 1\n"
      << "words=('" << warpcall << "' \"$@\"); CURRENT=${#words}\n"
      << "_warpcall\n";
  const auto complete = [&](const std::string& words) {
    return Lines(Shell("{ zsh -f '" + folder_.Path("complete.zsh") + "' " + words + "; }").out);
  };
  EXPECT_THAT(complete("pro"), ElementsAre("profile"));
  EXPECT_TRUE(Becomes(complete, "run ge", {"gelu"}));
  EXPECT_TRUE(Becomes(complete, "run ''", {"gelu"}));
  EXPECT_THAT(complete("run gelu --"), IsSupersetOf({"--shape", "--json", "--output"}));
  EXPECT_THAT(complete("run gelu x"), ElementsAre("files"));
}

TEST_F(WordsTest, FishCompletesByTheScript) {
  if (RunProgram("command -v fish").exit_status != 0) GTEST_SKIP() << "there is no fish";
  const std::string warpcall = testing::ProgramPath("warpcall");
  const auto complete = [&](const std::string& words) {
    const std::string folder = warpcall.substr(0, warpcall.rfind('/'));
    return Lines(
        Shell(absl::StrCat("{ PATH=", folder, ":$PATH fish --no-config -c '", warpcall,
                           " completion fish | source; complete -C \"warpcall ", words, "\"'; }"))
            .out);
  };
  EXPECT_THAT(complete("pro"), ElementsAre("profile"));
  EXPECT_TRUE(Becomes(complete, "run ge", {"gelu"}));
  EXPECT_THAT(complete("run gelu --"), IsSupersetOf({"--shape", "--json", "--output"}));
  EXPECT_THAT(complete("run --type=bf"), ElementsAre("--type=bfloat16"));
  EXPECT_THAT(complete("run gelu " + folder_.Path("x.n")), ElementsAre(folder_.Path("x.npy")));
  EXPECT_THAT(complete("run gelu --output=" + folder_.Path("x.n")),
              ElementsAre("--output=" + folder_.Path("x.npy")));
  EXPECT_THAT(complete("graph g.json --input x=" + folder_.Path("x.n")),
              ElementsAre("x=" + folder_.Path("x.npy")));
}

}  // namespace
}  // namespace warpcall::cli
