#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "server/access/callers.h"
#include "server/access/file_watch.h"
#include "server/access/tokens.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReplaceFile;

constexpr char kAliceToken[] = "alice-0123456789abcdef";
constexpr char kBobToken[] = "bob-0123456789abcdef";

TEST(TokenTableTest, FindsWhoseATokenIs) {
  const auto table = TokenTable::Parse(absl::StrCat("# who\n\nalice ", kAliceToken, "\r\n  bob\t ",
                                                    kBobToken, "\nalice second-0123456789"));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->size(), 3u);
  EXPECT_EQ(*table->PrincipalOf(kAliceToken), "alice");
  EXPECT_EQ(*table->PrincipalOf("second-0123456789"), "alice");
  EXPECT_EQ(*table->PrincipalOf(kBobToken), "bob");
  for (const std::string& other :
       {std::string(), std::string("alice"), std::string(kAliceToken, 21),
        absl::StrCat(kAliceToken, "x"), std::string(100'000, 'a')})
    EXPECT_EQ(table->PrincipalOf(other).status().code(), absl::StatusCode::kUnauthenticated);
}

TEST(TokenTableTest, RefusesWhatIsNoTableAndNeverSaysAToken) {
  const std::string secret = "secret-0123456789";
  const struct {
    std::string text;
    const char* message;
  } kCases[] = {
      {"", "no token"},
      {"# alice\n", "no token"},
      {"alice\n",
       "line 1: has 1 word, not a name and a token; a comment stands on a line of its own"},
      {absl::StrCat("\nalice ", secret, " ", secret), "line 2: has 3 words"},
      {absl::StrCat("alice ", std::string(4097, 'x')), "has 4097 bytes; it has to be 1 to 4096"},
      {absl::StrCat("alice ", secret, "\xc3\xa9"), "printable"},
      {absl::StrCat(std::string(129, 'a'), " ", secret), "the name has to be 1 to 128"},
      {absl::StrCat("alice ", secret, "\nbob ", secret),
       "line 2: the token of bob is also that of alice, on line 1"},
  };
  for (const auto& wrong : kCases) {
    const absl::Status status = TokenTable::Parse(wrong.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong.text;
    EXPECT_THAT(status.message(), HasSubstr(wrong.message));
    EXPECT_THAT(status.message(), Not(HasSubstr(secret)));
  }
}

TEST(TokenTableTest, CountsTokensThatCanBeGuessed) {
  const auto table = TokenTable::Parse("a 1\nb 0123456789abcde\nc 0123456789abcdef");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->weak(), 2u);
  EXPECT_EQ(*table->PrincipalOf("1"), "a");
}

TEST(BearerTokenTest, TakesTheSchemeInAnyCase) {
  EXPECT_EQ(*BearerToken("Bearer abc"), "abc");
  EXPECT_EQ(*BearerToken("bEARER  abc "), "abc");
  for (const std::string& wrong :
       {std::string(), std::string("Bearer"), std::string("Bearer "), std::string("Basic abc"),
        std::string("Bearerabc"), absl::StrCat("Bearer ", std::string(4097, 'x'))})
    EXPECT_EQ(BearerToken(wrong).status().code(), absl::StatusCode::kUnauthenticated) << wrong;
}

TEST(CallersTest, KeepWhatTheyHadUntilTheFileIsRightAgain) {
  const testing::TempFolder folder;
  const std::string path = folder.Path("tokens");
  EXPECT_THAT(Callers::Open(path).status().message(), HasSubstr("--token_file: "));
  ReplaceFile(path, absl::StrCat("alice ", kAliceToken));
  const auto callers = Callers::Open(path);
  ASSERT_TRUE(callers.ok()) << callers.status();
  ReplaceFile(path, absl::StrCat("bob ", kBobToken, "\nx"));
  EXPECT_THAT((*callers)->ReadAgain().status().message(), HasSubstr("line 2"));
  EXPECT_EQ(*(*callers)->PrincipalOf(absl::StrCat("Bearer ", kAliceToken)), "alice");
  ReplaceFile(path, absl::StrCat("bob ", kBobToken));
  EXPECT_EQ(*(*callers)->ReadAgain(), "1 token");
  EXPECT_FALSE((*callers)->PrincipalOf(absl::StrCat("Bearer ", kAliceToken)).ok());
  EXPECT_EQ(*(*callers)->PrincipalOf(absl::StrCat("Bearer ", kBobToken)), "bob");
}

TEST(FileWatchTest, TellsOfAFileThatIsAnotherByNow) {
  const testing::TempFolder folder;
  const std::string one = folder.Path("one"), two = folder.Path("two");
  ReplaceFile(one, "a");
  std::atomic<int> told{0};
  absl::Notification begun, ended;
  const FileWatch watch(
      {one, two}, FileWatch::StatesOf({one, two}),
      [&] {
        const int times = told.fetch_add(1) + 1;
        if (times == 1) begun.Notify();
        if (times == 2) ended.Notify();
        return true;
      },
      absl::Milliseconds(1));
  ReplaceFile(one, "b");
  begun.WaitForNotification();
  ReplaceFile(two, "c");  // was not there
  ended.WaitForNotification();
}

// While the server got ready, which may take minutes.
TEST(FileWatchTest, TellsOfWhatChangedBeforeItWatched) {
  const testing::TempFolder folder;
  const std::string file = folder.Path("file");
  ReplaceFile(file, "a");
  const std::string seen = FileWatch::StatesOf({file});
  ReplaceFile(file, "ab");
  absl::Notification told;
  const FileWatch watch(
      {file}, seen,
      [&] {
        told.Notify();
        return true;
      },
      absl::Milliseconds(1));
  told.WaitForNotification();
}

TEST(FileWatchTest, CallsAnewUntilItSucceeds) {
  const testing::TempFolder folder;
  const std::string file = folder.Path("file");
  ReplaceFile(file, "a");
  std::atomic<int> called{0};
  absl::Notification third, again;
  const FileWatch watch(
      {file}, FileWatch::StatesOf({file}),
      [&] {
        const int times = called.fetch_add(1) + 1;
        if (times == 3) third.Notify();
        if (times == 4) again.Notify();
        return times >= 3;
      },
      absl::Milliseconds(1));
  ReplaceFile(file, "b");
  third.WaitForNotification();
  // A success is not repeated: the fourth call belongs to the next change.
  EXPECT_FALSE(again.WaitForNotificationWithTimeout(absl::Milliseconds(50)));
  ReplaceFile(file, "c");
  again.WaitForNotification();
}

TEST(FileWatchTest, ReadsNowWhereItIsAsked) {
  std::atomic<int> called{0};
  absl::Notification second;
  FileWatch watch(
      {}, "",
      [&] {
        if (called.fetch_add(1) == 1) second.Notify();
        return true;
      },
      absl::InfiniteDuration());
  watch.ReadNow();
  while (called.load() < 1) absl::SleepFor(absl::Milliseconds(1));
  watch.ReadNow();
  second.WaitForNotification();
  EXPECT_TRUE(watch.End(absl::InfiniteDuration()));
}

TEST(FileWatchTest, SaysThatItHangs) {
  absl::Notification begun, answer;
  FileWatch watch(
      {}, "",
      [&] {
        begun.Notify();
        answer.WaitForNotification();
        return true;
      },
      absl::InfiniteDuration());
  watch.ReadNow();
  begun.WaitForNotification();
  EXPECT_GT(watch.busy_for(), absl::ZeroDuration());
  EXPECT_FALSE(watch.End(absl::Milliseconds(1)));
  answer.Notify();
  EXPECT_TRUE(watch.End(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace warpcall
