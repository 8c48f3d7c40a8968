#include "kernels/common/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <utility>

#include "tests/temp_folder.h"

namespace warpcall {
namespace {

class AtomicFileTest : public ::testing::Test {
 protected:
  const testing::TempFolder folder_;
  const std::string path_ = folder_.Path("file");
};

TEST_F(AtomicFileTest, HasItsNameWhenItIsWholeAndReplacesWhatHadIt) {
  for (const std::string text : {"first", "the second"}) {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(path_ + ".");
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(file->Write(text).ok());
    EXPECT_NE(testing::ReadFile(path_), text);
    EXPECT_TRUE(file->Write("").ok());
    EXPECT_TRUE(file->Write(", more").ok());
    EXPECT_TRUE(file->Commit(path_).ok());
    EXPECT_EQ(testing::ReadFile(path_), text + ", more");
    EXPECT_EQ(folder_.Names().size(), 1u);
  }
}

TEST_F(AtomicFileTest, LeavesNothingUncommitted) {
  {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(file->Write("half of it").ok());
    EXPECT_EQ(file->Commit(folder_.Path("no/folder")).code(), absl::StatusCode::kUnavailable);
    const AtomicFile moved = *std::move(file);
    EXPECT_EQ(folder_.Names().size(), 1u);
  }
  EXPECT_TRUE(folder_.Names().empty());
}

TEST_F(AtomicFileTest, IsItsOwnersUntilItIsPublished) {
  const auto mode = [&] {
    struct stat facts = {};
    EXPECT_EQ(stat(path_.c_str(), &facts), 0);
    return facts.st_mode & 0777;
  };
  for (const bool publishes : {false, true}) {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    if (publishes) EXPECT_TRUE(file->Publish().ok());
    EXPECT_TRUE(file->Commit(path_).ok());
    EXPECT_EQ(mode(), publishes ? 0644u : 0600u);
  }
}

TEST_F(AtomicFileTest, SaysWhyThereCanBeNone) {
  const absl::Status none = AtomicFile::Create(folder_.Path("no/folder/file")).status();
  EXPECT_EQ(none, absl::UnavailableError("No such file or directory"));
}

}  // namespace
}  // namespace warpcall
