#include "client/cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace warpcall::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Two commands and their common options.
const ProgramModel kProgram = {
    .options = {{.name = "--server", .takes_value = true}, {.name = "--json"}},
    .commands = {
        {.name = "run",
         .options = {{.name = "kernel", .named = false, .takes_value = true},
                     {.name = "inputs", .named = false, .takes_value = true},
                     {.name = "--type", .takes_value = true, .values = {"float32", "float16"}},
                     {.name = "--implementation", .takes_value = true},
                     {.name = "--device", .takes_value = true},
                     {.name = "--attribute", .takes_value = true},
                     {.name = "--output", .takes_value = true},
                     {.name = "--compare-with", .takes_value = true},
                     {.name = "--html", .takes_value = true},
                     {.name = "--seed", .takes_value = true}}},
        {.name = "help", .options = {{.name = "command", .named = false, .takes_value = true}}},
    }};

Completion Completed(const std::vector<std::string>& words) { return Complete(kProgram, words); }

TEST(CompleteTest, CommandsComeFirst) {
  EXPECT_THAT(Completed({""}).words, ElementsAre("run", "help"));
  EXPECT_THAT(Completed({"--json", "r"}).words, ElementsAre("run", "help"));
  // The value of an option is no command.
  EXPECT_THAT(Completed({"--server", "run", ""}).words, ElementsAre("run", "help"));
  EXPECT_THAT(Completed({"--server=run", ""}).words, ElementsAre("run", "help"));
}

TEST(CompleteTest, OptionsAreTheCommandsAndThePrograms) {
  EXPECT_THAT(Completed({"-"}).words, ElementsAre("--server", "--json"));
  EXPECT_THAT(
      Completed({"run", "--"}).words,
      UnorderedElementsAre("--server", "--json", "--type", "--implementation", "--device",
                           "--attribute", "--output", "--compare-with", "--html", "--seed"));
}

TEST(CompleteTest, ValuesAreThoseOfTheOption) {
  EXPECT_THAT(Completed({"run", "gelu", "--type", ""}).words, ElementsAre("float32", "float16"));
  const Completion joined = Completed({"run", "gelu", "--type=f"});
  EXPECT_THAT(joined.words, ElementsAre("float32", "float16"));
  EXPECT_EQ(joined.before, "--type=");
  EXPECT_EQ(joined.begun, "f");
  EXPECT_EQ(Completed({"run", "gelu", "--device=c"}).names, Names::kDevices);
  EXPECT_EQ(Completed({"run", "gelu", "--attribute", "axis=1"}).before, "");
  EXPECT_EQ(Completed({"run", "gelu", "--implementation", ""}).names, Names::kImplementations);
  EXPECT_EQ(Completed({"run", "gelu", "--device", ""}).names, Names::kDevices);
  EXPECT_EQ(Completed({"run", "gelu", "--attribute", ""}).names, Names::kAttributes);
  EXPECT_EQ(Completed({"run", "gelu", "--output", ""}).names, Names::kFiles);
  EXPECT_EQ(Completed({"run", "gelu", "--compare-with", ""}).names, Names::kImplementations);
  EXPECT_EQ(Completed({"run", "gelu", "--html", ""}).names, Names::kFiles);
  EXPECT_EQ(Completed({"run", "gelu", "--seed", ""}).names, Names::kNone);
  EXPECT_THAT(Completed({"run", "gelu", "--seed", ""}).words, IsEmpty());
}

TEST(CompleteTest, WhatHasNoNameGoesByItsPlace) {
  EXPECT_EQ(Completed({"run", ""}).names, Names::kKernels);
  EXPECT_EQ(Completed({"run", "--type", "f32", ""}).names, Names::kKernels);
  EXPECT_EQ(Completed({"run", "gelu", ""}).names, Names::kFiles);
  EXPECT_EQ(Completed({"run", "gelu", "x.npy", ""}).names, Names::kFiles);
  EXPECT_THAT(Completed({"help", ""}).words, ElementsAre("run", "help"));
}

TEST(CompleteTest, TheKernelAndTheProgramsOptionsAreTheCommandLines) {
  const Completion completion = Completed({"--server", "unix:/s", "--json", "run", "--type", "f32",
                                           "gelu", "--seed=1", "--implementation", ""});
  EXPECT_EQ(completion.kernel, "gelu");
  EXPECT_THAT(completion.options, ElementsAre("--server=unix:/s", "--json"));
  EXPECT_THAT(Completed({"run", "--server=unix:/t", ""}).options, ElementsAre("--server=unix:/t"));
  EXPECT_THAT(Completed({"run", "--server", ""}).options, IsEmpty());
}

TEST(CompleteTest, NothingIsCompletedOfNothing) { EXPECT_THAT(Completed({}).words, IsEmpty()); }

}  // namespace
}  // namespace warpcall::cli
