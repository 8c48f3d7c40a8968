#include "client/cli/push/file_watch.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>

#include "tests/temp_folder.h"

namespace warpcall::cli {
namespace {

void Write(const std::string& path) { std::ofstream(path) << "text"; }

std::unique_ptr<FileWatch> Watch(const std::string& path) {
  auto watch = FileWatch::Start({path});
  EXPECT_TRUE(watch.ok()) << watch.status();
  return *std::move(watch);
}

// Another watch of the folder says when its events have been read.
TEST(FileWatchTest, OtherFilesOfTheFolderAreNoSave) {
  const testing::TempFolder folder;
  const auto watch = Watch(folder.Path("mine.cu")), others = Watch(folder.Path("other.cu"));
  client::Cancellation work;
  watch->Begin(&work);
  for (int i = 0; i < 3; ++i) {
    others->Begin(nullptr);
    Write(folder.Path("other.cu"));
    ASSERT_TRUE(others->AwaitSave());
  }
  EXPECT_FALSE(watch->End());
  watch->Begin(nullptr);
  Write(folder.Path("mine.cu"));
  EXPECT_TRUE(watch->AwaitSave());
  EXPECT_TRUE(watch->End());
  watch->Begin(nullptr);  // forgets it
  EXPECT_FALSE(watch->End());
}

TEST(FileWatchTest, StopEndsTheWork) {
  const testing::TempFolder folder;
  const auto watch = Watch(folder.Path("mine.cu"));
  client::Cancellation work, later;
  watch->Begin(&work);
  watch->Stop();
  work.WaitFor(absl::InfiniteDuration());
  EXPECT_FALSE(watch->AwaitSave());
  EXPECT_FALSE(watch->End());
  watch->Begin(&later);
  later.WaitFor(absl::InfiniteDuration());
}

TEST(FileWatchTest, AFolderThatIsNotThereIsNamed) {
  const absl::Status status = FileWatch::Start({"/nowhere/at/all/x.cu"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nowhere/at/all"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace warpcall::cli
