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

Completion Of(const std::vector<std::string>& words) { return Complete(kProgram, words); }

TEST(CompleteTest, CommandsComeFirst) {
  EXPECT_THAT(Of({""}).words, ElementsAre("run", "help"));
  EXPECT_THAT(Of({"--json", "r"}).words, ElementsAre("run", "help"));
  // The value of an option is no command.
  EXPECT_THAT(Of({"--server", "run", ""}).words, ElementsAre("run", "help"));
  EXPECT_THAT(Of({"--server=run", ""}).words, ElementsAre("run", "help"));
}

TEST(CompleteTest, OptionsAreTheCommandsAndThePrograms) {
  EXPECT_THAT(Of({"-"}).words, ElementsAre("--server", "--json"));
  EXPECT_THAT(
      Of({"run", "--"}).words,
      UnorderedElementsAre("--server", "--json", "--type", "--implementation", "--device",
                           "--attribute", "--output", "--compare-with", "--html", "--seed"));
}

TEST(CompleteTest, ValuesAreThoseOfTheOption) {
  EXPECT_THAT(Of({"run", "gelu", "--type", ""}).words, ElementsAre("float32", "float16"));
  const Completion joined = Of({"run", "gelu", "--type=f"});
  EXPECT_THAT(joined.words, ElementsAre("float32", "float16"));
  EXPECT_EQ(joined.before, "--type=");
  EXPECT_EQ(joined.begun, "f");
  EXPECT_EQ(Of({"run", "gelu", "--device=c"}).names, Names::kDevices);
  EXPECT_EQ(Of({"run", "gelu", "--attribute", "axis=1"}).before, "");
  EXPECT_EQ(Of({"run", "gelu", "--implementation", ""}).names, Names::kImplementations);
  EXPECT_EQ(Of({"run", "gelu", "--device", ""}).names, Names::kDevices);
  EXPECT_EQ(Of({"run", "gelu", "--attribute", ""}).names, Names::kAttributes);
  EXPECT_EQ(Of({"run", "gelu", "--output", ""}).names, Names::kFiles);
  EXPECT_EQ(Of({"run", "gelu", "--compare-with", ""}).names, Names::kImplementations);
  EXPECT_EQ(Of({"run", "gelu", "--html", ""}).names, Names::kFiles);
  EXPECT_EQ(Of({"run", "gelu", "--seed", ""}).names, Names::kNone);
  EXPECT_THAT(Of({"run", "gelu", "--seed", ""}).words, IsEmpty());
}

TEST(CompleteTest, WhatHasNoNameGoesByItsPlace) {
  EXPECT_EQ(Of({"run", ""}).names, Names::kKernels);
  EXPECT_EQ(Of({"run", "--type", "f32", ""}).names, Names::kKernels);
  EXPECT_EQ(Of({"run", "gelu", ""}).names, Names::kFiles);
  EXPECT_EQ(Of({"run", "gelu", "x.npy", ""}).names, Names::kFiles);
  EXPECT_THAT(Of({"help", ""}).words, ElementsAre("run", "help"));
}

TEST(CompleteTest, TheKernelAndTheProgramsOptionsAreTheCommandLines) {
  const Completion completion = Of({"--server", "unix:/s", "--json", "run", "--type", "f32", "gelu",
                                    "--seed=1", "--implementation", ""});
  EXPECT_EQ(completion.kernel, "gelu");
  EXPECT_THAT(completion.options, ElementsAre("--server=unix:/s", "--json"));
  EXPECT_THAT(Of({"run", "--server=unix:/t", ""}).options, ElementsAre("--server=unix:/t"));
  EXPECT_THAT(Of({"run", "--server", ""}).options, IsEmpty());
}

TEST(CompleteTest, NothingIsCompletedOfNothing) { EXPECT_THAT(Of({}).words, IsEmpty()); }

}  // namespace
}  // namespace warpcall::cli
