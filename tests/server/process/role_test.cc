#include "server/process/role.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace warpcall::process {
namespace {

using Words = std::vector<std::string>;

TEST(RoleTest, EveryFlagComesBackFromItsWords) {
  for (const Role role : {Role::kInspect, Role::kSelfTest, Role::kWorker, Role::kCompiler}) {
    const RoleFlags flags = {.role = role,
                             .device = "cuda:0",
                             .fault_injection = true,
                             .compile_cache = "/a folder",
                             .log_level = "debug",
                             .log_format = "json",
                             .method = "describe",
                             .traceparent = "00-1-2-01",
                             .in_parts = true,
                             .deadline_ns = -5,
                             .unavailable_rows = {"3:no --such=thing, here", "7:"},
                             .depth = "full",
                             .rows = {4, 0},
                             .lanes = 3};
    const Words words = ToWords(flags);
    ASSERT_EQ(FindRole(words.front()), role);
    const auto read = ParseRoleFlags(role, absl::MakeConstSpan(words).subspan(1));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ToWords(*read), words);
    EXPECT_EQ(words.size(), 15u);  // the role, and two of unavailable_rows
    EXPECT_EQ(read->unavailable_rows, flags.unavailable_rows);
    EXPECT_EQ(read->rows, flags.rows);
  }
}

TEST(RoleTest, WhatIsNotGivenIsNotSaid) {
  EXPECT_EQ(ToWords({.role = Role::kCompiler}),
            (Words{"compiler", "--deadline_ns=9223372036854775807", "--lanes=1"}));
}

TEST(RoleTest, AServersCommandLineNamesNoRole) {
  for (const char* const word : {"", "--devices=cpu", "worker=", "inspect"})
    EXPECT_FALSE(FindRole(word).has_value()) << word;
}

TEST(RoleTest, OtherWordsAreErrors) {
  for (const char* const word : {"--lanes=x", "--rows=1,,2", "--listen=a:1", "cpu", "--device"})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseRoleFlags(Role::kWorker, {word}).status())) << word;
}

}  // namespace
}  // namespace warpcall::process
