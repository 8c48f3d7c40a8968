#include "server/flags/flag_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/flags/config.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

class FlagFile {
 public:
  explicit FlagFile(const std::string& text) { Write(text); }
  void Write(const std::string& text) { std::ofstream(path(), std::ios::trunc) << text; }
  std::string path() const { return folder_.Path("flags"); }
  std::string flag() const { return absl::StrCat("--flagfile=", path()); }

 private:
  testing::TempFolder folder_;
};

TEST(ReadFlagFile, HasAFlagALine) {
  const FlagFile file("# comment\n\n--listen=unix:/a=b\n  queue_mib = 99 \r\n--check=\nx=1");
  const auto settings = ReadFlagFile(file.path());
  ASSERT_TRUE(settings.ok()) << settings.status();
  std::string all;
  for (const FlagSetting& setting : *settings)
    absl::StrAppend(&all, setting.name, "=", setting.value, "@",
                    setting.where.substr(setting.where.rfind(':') + 1), ";");
  EXPECT_EQ(all, "listen=unix:/a=b@3;queue_mib=99@4;check=@5;x=1@6;");
}

TEST(ReadFlagFile, NamesWhatIsWrongAndWhere) {
  const auto error = [](const std::string& text) {
    const FlagFile file(text);
    const std::string said(ReadFlagFile(file.path()).status().message());
    return absl::StartsWith(said, file.path()) ? said.substr(file.path().size()) : said;
  };
  EXPECT_EQ(error("a=1\nnonsense\n"),
            ":2: \"nonsense\" is not NAME=VALUE; for a switch write nonsense=true");
  EXPECT_EQ(error("--allow-shared-memory\n"),
            ":1: \"allow-shared-memory\" is not NAME=VALUE; for a switch write "
            "allow_shared_memory=true");
  EXPECT_EQ(error("queue_limit 5\n"), ":1: \"queue_limit 5\" is not NAME=VALUE");
  for (const char* quoted : {"\"debug\"", "'debug'"})
    EXPECT_EQ(error(absl::StrCat("a=1\nlog_level = ", quoted, "\n")),
              ":2: the value of log_level is in quotes, which count as part of it; write "
              "log_level=debug");
  EXPECT_EQ(error("=1\n"), ":1: \"=1\" is not NAME=VALUE");
  EXPECT_TRUE(absl::StrContains(error("a=1\n\n--a=2\n"), ":3: a is given at "));
  EXPECT_TRUE(absl::StrContains(error(std::string(70'000, '#')), "65536"));
  EXPECT_EQ(ReadFlagFile("/no/such/file").status().message(),
            "--flagfile: /no/such/file: No such file or directory");
  EXPECT_EQ(ReadFlagFile("/").status().message(),
            "--flagfile: /: is a directory, not a regular file");
}

TEST(FlagsOfEnvironment, TakesThoseOfItsPrefix) {
  const char* const environment[] = {"PATH=/bin",       "WARPCALLD_QUEUE_MIB=77",
                                     "WARPCALL_TEST=1", "WARPCALLD_LISTEN=a:1=2",
                                     "WARPCALLD_",      nullptr};
  const std::vector<FlagSetting> settings = FlagsOfEnvironment(environment);
  ASSERT_EQ(settings.size(), 3u);
  EXPECT_EQ(settings[0].name, "queue_mib");
  EXPECT_EQ(settings[0].value, "77");
  EXPECT_EQ(settings[0].where, "WARPCALLD_QUEUE_MIB");
  EXPECT_EQ(settings[1].value, "a:1=2");
}

// Sets a variable while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* const name_;
};

struct ParsedFlags {
  bool ok = false;
  int exit_code = -1;
  Config config;
  std::string said;
};

ParsedFlags Parse(std::vector<std::string> words) {
  words.insert(words.begin(), "warpcalld");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  ParsedFlags parsed;
  ::testing::internal::CaptureStderr();
  parsed.ok =
      ParseConfig(static_cast<int>(argv.size()), argv.data(), &parsed.config, &parsed.exit_code);
  parsed.said = ::testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(ParseConfig, DashesMayStandForUnderscores) {
  FlagFile file("queue-mib=2\nlog_level=debug\n");
  const ParsedFlags parsed =
      Parse({file.flag(), "--queue-limit=7", "--lame-duck_seconds", "3", "--devices=a-b"});
  ASSERT_TRUE(parsed.ok) << parsed.said;
  EXPECT_EQ(parsed.config.queue_limit, 7);
  EXPECT_EQ(parsed.config.queue_mib, 2);
  EXPECT_EQ(parsed.config.lame_duck_seconds, 3);
  EXPECT_EQ(parsed.config.devices, "a-b");  // values stay as they are
  file.Write("queue-mib=2\nqueue_mib=3\n");
  EXPECT_TRUE(absl::StrContains(Parse({file.flag()}).said, "queue_mib is given at "));
}

TEST(ParseConfig, UnknownFlagsGetTheNearestName) {
  EXPECT_EQ(Parse({"--quue_limit=5"}).said,
            "flag quue_limit is unknown; did you mean queue_limit?\n");
  EXPECT_EQ(Parse({"--metrics-lsten", "x:1"}).said,
            "flag metrics_lsten is unknown; did you mean metrics_listen?\n");
  EXPECT_EQ(Parse({"--zzz"}).said, "flag zzz is unknown\n");
  // Hidden flags are no suggestion.
  EXPECT_EQ(Parse({"--test_cpu_worker=1"}).said, "flag test_cpu_worker is unknown\n");
  const Variable variable("WARPCALLD_QUEUE_LIMT", "1");
  const ParsedFlags parsed = Parse({});
  ASSERT_EQ(parsed.config.warnings.size(), 1u);
  EXPECT_EQ(parsed.config.warnings[0],
            "WARPCALLD_QUEUE_LIMT names no flag of this server; did you mean queue_limit?");
}

TEST(ParseConfig, ValuesThatAreNoNumbersAreSaidToBeNone) {
  for (const auto& [flag, error] : std::vector<std::pair<std::string, std::string>>{
           {"--drain_seconds=30s", "Value 30s is no number; it must be 0 to 3600"},
           {"--staging_mib=1GiB", "Value 1GiB is no number; it must be 1 to 1048576"},
           {"--drain_seconds=nan", "Value nan not in range 0 to 3600"},
           {"--pollers=17", "Value 17 not in range"}})
    EXPECT_TRUE(absl::StrContains(Parse({flag}).said, error)) << Parse({flag}).said;
}

TEST(ParseConfig, HelpHasGroupsAndAtMost100Columns) {
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(Parse({"--help"}).ok);
  const std::string help = ::testing::internal::GetCapturedStdout();
  std::vector<std::string> groups;
  for (const absl::string_view line : absl::StrSplit(help, '\n')) {
    EXPECT_LE(line.size(), 100u) << line;
    if (!absl::StartsWith(line, " ") && absl::EndsWith(line, ":")) groups.emplace_back(line);
  }
  EXPECT_THAT(groups, ::testing::ElementsAre("Options:", "Listening:", "Devices:", "Limits:",
                                             "Security:", "Shutdown:", "Watching:", "Expert:"));
  EXPECT_FALSE(absl::StrContains(help, "test_"));
}

TEST(ParseConfig, TheCommandLineGoesBeforeTheEnvironmentAndThatBeforeTheFile) {
  const FlagFile file("queue_limit=1\nqueue_mib=2\nqueue_seconds=3\nlog_format=json\n");
  const Variable limit("WARPCALLD_QUEUE_LIMIT", "10");
  const Variable mib("WARPCALLD_QUEUE_MIB", "20");
  const ParsedFlags parsed = Parse({file.flag(), "--queue_limit", "100"});
  ASSERT_TRUE(parsed.ok) << parsed.said;
  EXPECT_EQ(parsed.config.queue_limit, 100);
  EXPECT_EQ(parsed.config.queue_mib, 20);
  EXPECT_EQ(parsed.config.queue_seconds, 3);
  EXPECT_EQ(parsed.config.log_format, LogFormat::kJson);
}

TEST(ParseConfig, TheFileMayBeNamedByTheEnvironment) {
  const FlagFile file("queue_limit=17\n");
  const Variable variable("WARPCALLD_FLAGFILE", file.path().c_str());
  EXPECT_EQ(Parse({}).config.queue_limit, 17);
}

TEST(ParseConfig, SaysWhereAWrongValueStands) {
  const Variable variable("WARPCALLD_QUEUE_LIMIT", "0");
  const ParsedFlags by_environment = Parse({});
  EXPECT_FALSE(by_environment.ok);
  EXPECT_EQ(by_environment.exit_code, 2);
  EXPECT_TRUE(absl::StrContains(by_environment.said, "it stands in WARPCALLD_QUEUE_LIMIT"))
      << by_environment.said;
  const FlagFile file("\nqueue_mib=x\n");
  EXPECT_TRUE(absl::StrContains(Parse({file.flag(), "--queue_limit=1"}).said,
                                absl::StrCat("it stands in ", file.path(), ":2\n")));
}

TEST(ParseConfig, ACommentBehindAValueBelongsOnALineOfItsOwn) {
  const FlagFile commented("# yes\nqueue_limit=5 # five\n");
  const std::string said = Parse({commented.flag()}).said;
  EXPECT_TRUE(absl::StrContains(said, absl::StrCat("it stands in ", commented.path(),
                                                   ":2; write a comment on a line of its own\n")))
      << said;
}

TEST(ParseConfig, ALogLevelOfOtherProgramsGetsItsNameHere) {
  EXPECT_TRUE(absl::StrContains(Parse({"--log_level=warn"}).said,
                                "\"warn\" is unknown; known: debug, info, warning, error; did you "
                                "mean warning?"));
}

// Holds even if the flag for the format comes after the mistake.
TEST(ParseConfig, MistakesAreJsonWhereTheLogIs) {
  const FlagFile of_file("queue_limt=1\nlog_format=json\n");
  const ParsedFlags parsed[] = {Parse({"--queue_limit=0", "--log_format=json"}),
                                Parse({"--queue_mib=", "--log_format", "json"}),
                                Parse({"--no_such_flag", "--log_format=json"}),
                                Parse({of_file.flag()}), [] {
                                  const Variable format("WARPCALLD_LOG_FORMAT", "json");
                                  return Parse({"--staging_mib=511"});
                                }()};
  SetLogFormat(LogFormat::kLogfmt);
  for (const ParsedFlags& wrong : parsed) {
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_TRUE(absl::StartsWith(wrong.said, "{\"ts\":")) << wrong.said;
    EXPECT_TRUE(absl::StrContains(wrong.said, "\"level\":\"error\",\"msg\":\"")) << wrong.said;
    EXPECT_TRUE(absl::EndsWith(wrong.said, "}\n")) << wrong.said;
  }
  // The command line overrides the file.
  EXPECT_EQ(Parse({of_file.flag(), "--log_format=logfmt"}).said,
            absl::StrCat(of_file.path(),
                         ":1: flag queue_limt is unknown or not allowed in a file; did "
                         "you mean queue_limit?\n"));
}

// An empty value does not take the next flag for its value.
TEST(ParseConfig, NoValueIsTheEmptyOneWhereTheFlagHasThat) {
  const FlagFile file("compile_cache=\nqueue_mib=99\n");
  using Words = std::vector<std::string>;
  for (const Words& words : {Words{file.flag()}, Words{"--compile_cache=", "--queue_mib=99"}}) {
    const ParsedFlags parsed = Parse(words);
    ASSERT_TRUE(parsed.ok) << parsed.said;
    EXPECT_EQ(parsed.config.compile_cache, "");
    EXPECT_EQ(parsed.config.queue_mib, 99);
  }
  const Variable no_file("WARPCALLD_FLAGFILE", "");
  const Variable no_folder("WARPCALLD_COMPILE_CACHE", "");
  const Variable limit("WARPCALLD_QUEUE_LIMIT", "7");
  const ParsedFlags parsed = Parse({});
  ASSERT_TRUE(parsed.ok) << parsed.said;
  EXPECT_EQ(parsed.config.compile_cache, "");
  EXPECT_EQ(parsed.config.queue_limit, 7);
}

TEST(ParseConfig, NoValueIsRefusedWhereTheFlagNeedsOne) {
  for (const char* const flag : {"queue_mib", "devices", "listen", "check", "log_level",
                                 "tls_client_ca", "token_file", "policy_file"}) {
    const std::string lacks = absl::StrCat("--", flag, "= lacks a value");
    const FlagFile file(absl::StrCat("\n", flag, "=\nqueue_limit=7\n"));
    const ParsedFlags by_file = Parse({file.flag()});
    EXPECT_EQ(by_file.exit_code, 2) << flag;
    EXPECT_EQ(by_file.said, absl::StrCat(file.path(), ":2: ", lacks, "\n"));
    const ParsedFlags by_command = Parse({absl::StrCat("--", flag, "="), "--queue_limit=7"});
    EXPECT_EQ(by_command.exit_code, 2) << flag;
    EXPECT_EQ(by_command.said, lacks + "\n");
    EXPECT_EQ(Parse({absl::StrCat("--", flag), "", "--queue_limit=7"}).said, lacks + "\n");
  }
  const Variable variable("WARPCALLD_TOKEN_FILE", "");
  EXPECT_EQ(Parse({}).said, "WARPCALLD_TOKEN_FILE: --token_file= lacks a value\n");
}

TEST(ParseConfig, AddressesOfBothDoorsHaveTheirForms) {
  EXPECT_EQ(Parse({"--listen=unix:/x,[::1]:0"}).config.listen,
            std::vector<std::string>({"unix:/x", "[::1]:0"}));
  for (const char* const flag : {"--listen=unix:", "--listen=a:+1", "--metrics_listen=unix:/x",
                                 "--metrics_listen=unix:5", "--metrics_listen=a"}) {
    const ParsedFlags parsed = Parse({flag});
    EXPECT_EQ(parsed.exit_code, 2) << flag;
    EXPECT_TRUE(absl::StrContains(parsed.said, "is not HOST:PORT with a port of 0 to 65535"))
        << parsed.said;
  }
}

TEST(ParseConfig, AnUnknownVariableIsWarnedOfAndAnUnknownLineRefused) {
  const Variable variable("WARPCALLD_QUEUE_LIMT", "5");
  const Variable internal("WARPCALLD_TEST_CPU_WORKERS", "1");
  const ParsedFlags parsed = Parse({});
  ASSERT_TRUE(parsed.ok) << parsed.said;
  ASSERT_EQ(parsed.config.warnings.size(), 2u);
  EXPECT_TRUE(absl::StrContains(absl::StrCat(parsed.config.warnings[0], parsed.config.warnings[1]),
                                "WARPCALLD_QUEUE_LIMT names no flag"));
  EXPECT_EQ(parsed.config.tests.cpu_workers, 0);
  for (const char* const line :
       {"queue_limt=5", "flagfile=/other", "help=1", "test_cpu_workers=1"}) {
    const FlagFile file(line);
    const ParsedFlags refused = Parse({file.flag()});
    EXPECT_EQ(refused.exit_code, 2) << line;
    EXPECT_TRUE(absl::StrContains(refused.said, ":1: ")) << refused.said;
  }
}

TEST(ParseConfig, KnowsWhichFlagsDifferFromTheirDefaults) {
  const ParsedFlags parsed =
      Parse({"--queue_limit=1024", "--queue_seconds=60.0", "--queue_mib=7",
             "--listen=127.0.0.1:8470", "--devices=cpu", "--check", "--test_fault_injection"});
  ASSERT_TRUE(parsed.ok) << parsed.said;
  EXPECT_EQ(parsed.config.changed_flags,
            (std::map<std::string, std::string>{
                {"check", "true"}, {"devices", "cpu"}, {"queue_mib", "7"}}));
  EXPECT_EQ(Parse({"--listen=a:1,b:2"}).config.changed_flags.at("listen"), "a:1,b:2");
}

absl::Status AllPass(const Config&) { return absl::OkStatus(); }

class ReadAgainTest : public ::testing::Test {
 protected:
  ~ReadAgainTest() override { SetLogLevel(LogLevel::kInfo); }
};

TEST_F(ReadAgainTest, SetsTheLevelAndTellsWhatWaits) {
  FlagFile file("log_level=info\nqueue_limit=7\nqueue_mib=8\n");
  const Config config = Parse({file.flag()}).config;
  file.Write("log_level=debug\nqueue_limit=9\nlanes_per_device=2\n");
  EXPECT_EQ(*ReadFlagFileAgain(config, AllPass),
            "log_level is debug, was info; changed, but read at start only: lanes_per_device, "
            "queue_limit, queue_mib");
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kDebug);
  file.Write("queue_limit=7\nqueue_mib=8\n");
  EXPECT_EQ(*ReadFlagFileAgain(config, AllPass), "log_level is info, was debug");
}

TEST_F(ReadAgainTest, AnErrorChangesNothing) {
  FlagFile file("log_level=warning\n");
  const Config config = Parse({file.flag()}).config;
  SetLogLevel(config.log_level);
  for (const char* const text : {"log_level=loud", "log_level"}) {
    file.Write(text);
    EXPECT_FALSE(ReadFlagFileAgain(config, AllPass).ok()) << text;
    EXPECT_EQ(CurrentLogLevel(), LogLevel::kWarning);
  }
}

TEST_F(ReadAgainTest, WhateverTheNextStartWouldRefuseIsAnError) {
  FlagFile file("log_level=warning\n");
  const Config config = Parse({file.flag(), "--reception_mib=1024"}).config;
  SetLogLevel(config.log_level);
  const auto error = [&](const std::string& text) {
    file.Write("log_level=debug\n" + text);
    const auto again = ReadFlagFileAgain(config, [](const Config& now) {
      return now.token_file.empty() ? absl::OkStatus()
                                    : absl::NotFoundError("no " + now.token_file);
    });
    return std::string(again.status().message());
  };
  const std::string place = absl::StrCat(file.path(), ":2");
  EXPECT_EQ(error("queue_limt=5"),
            absl::StrCat(place,
                         ": flag queue_limt is unknown or not allowed in a file; did you mean "
                         "queue_limit?"));
  EXPECT_TRUE(absl::StrContains(error("queue_limit=0"), absl::StrCat("it stands in ", place)));
  EXPECT_EQ(error("queue_mib="), absl::StrCat(place, ": --queue_mib= lacks a value"));
  // Values are checked together with the command line's.
  EXPECT_EQ(error("max_message_mib=1025"),
            "--reception_mib: 1024 is less than max_message_mib, which is 1025");
  EXPECT_EQ(error("token_file=/tokens"), "no /tokens");
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kWarning);
  // The command line overrides it, so that a start does not look at it.
  EXPECT_EQ(error("reception_mib=x"), "");
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kDebug);
}

TEST_F(ReadAgainTest, ALevelOfTheCommandLineStays) {
  FlagFile file("log_level=debug\n");
  const Config config = Parse({file.flag(), "--log_level=error"}).config;
  SetLogLevel(config.log_level);
  EXPECT_EQ(*ReadFlagFileAgain(config, AllPass),
            "log_level stays error, as the command line or the environment has it");
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kError);
}

}  // namespace
}  // namespace warpcall
