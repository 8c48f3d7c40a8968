#include "client/cpp/complete_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "client/cpp/npy.h"
#include "tests/temp_folder.h"

namespace warpcall::client {
namespace {

using ::testing::ElementsAre;
using testing::ReadFile;
using ::testing::HasSubstr;
using ::testing::SizeIs;

mode_t ModeOf(const std::string& path) {
  struct stat facts = {};
  stat(path.c_str(), &facts);
  return facts.st_mode;
}

class CompleteFileTest : public ::testing::Test {
 protected:
  static std::unique_ptr<CompleteFile> Create(const std::string& path) {
    auto file = CompleteFile::Create(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }
  static void Fill(const std::string& path, absl::string_view text) {
    const auto file = Create(path);
    EXPECT_TRUE(file->Write({text.data(), text.size()}).ok());
    EXPECT_TRUE(file->Commit().ok());
  }

  const testing::TempFolder folder_;
  const std::string path_ = folder_.Path("y");
};

TEST_F(CompleteFileTest, AppearsWhenItIsComplete) {
  const auto file = Create(path_);
  EXPECT_TRUE(file->Write({"one ", 4}).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(file->Write({"two", 3}).ok());
  EXPECT_TRUE(file->Commit().ok());
  EXPECT_EQ(ReadFile(path_), "one two");
  EXPECT_THAT(folder_.Names(), ElementsAre("y"));
}

TEST_F(CompleteFileTest, TakesThePlaceOfWhatWasThereWithItsMode) {
  std::ofstream(path_) << std::string(1000, 'x');
  chmod(path_.c_str(), 0640);
  const auto file = Create(path_);
  EXPECT_TRUE(file->Write({"new", 3}).ok());
  EXPECT_THAT(ReadFile(path_), SizeIs(1000));
  EXPECT_TRUE(file->Commit().ok());
  EXPECT_EQ(ReadFile(path_), "new");
  EXPECT_EQ(ModeOf(path_) & 07777, 0640u);
}

TEST_F(CompleteFileTest, LeavesNothingUnlessCommitted) {
  std::ofstream(path_) << "old";
  EXPECT_TRUE(Create(path_)->Write({"new", 3}).ok());
  EXPECT_TRUE(Create(folder_.Path("other"))->Write({"new", 3}).ok());
  EXPECT_TRUE(CompleteFile::Check(path_).ok());
  EXPECT_TRUE(CompleteFile::Check(folder_.Path("other")).ok());
  EXPECT_EQ(ReadFile(path_), "old");
  EXPECT_THAT(folder_.Names(), ElementsAre("y"));
}

TEST_F(CompleteFileTest, FollowsALink) {
  std::ofstream(path_) << "old";
  const std::string link = folder_.Path("link");
  std::filesystem::create_symlink("y", link);
  Fill(link, "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(ReadFile(path_), "new");
}

TEST_F(CompleteFileTest, ADeviceStaysOne) {
  Fill("/dev/null", "gone");
  EXPECT_TRUE(CompleteFile::Check("/dev/null").ok());
  EXPECT_TRUE(S_ISCHR(ModeOf("/dev/null")));
  const auto full = Create("/dev/full");
  EXPECT_THAT(std::string(full->Write({"x", 1}).message()), HasSubstr("can't write /dev/full"));
}

TEST_F(CompleteFileTest, APipeGetsTheBytes) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(CompleteFile::Check(path_).ok());
  std::string read;
  std::thread reader([&] { read = ReadFile(path_); });
  Fill(path_, "through");
  reader.join();
  EXPECT_EQ(read, "through");
  EXPECT_TRUE(S_ISFIFO(ModeOf(path_)));
}

TEST_F(CompleteFileTest, SaysWhatCannotBeWritten) {
  for (const std::string& path : {folder_.Path("no/y"), folder_.Path("")}) {
    for (const absl::Status& status :
         {CompleteFile::Check(path), CompleteFile::Create(path).status()})
      EXPECT_THAT(std::string(status.message()), HasSubstr("can't write " + path));
  }
}

TEST_F(CompleteFileTest, TensorsAreWrittenSo) {
  std::ofstream(path_) << "old";
  std::filesystem::create_hard_link(path_, folder_.Path("kept"));
  ASSERT_TRUE(WriteNpy(path_, Tensor::FromFloats({1}, {1})).ok());
  EXPECT_THAT(ReadFile(path_), HasSubstr("NUMPY"));
  EXPECT_EQ(ReadFile(folder_.Path("kept")), "old");
  EXPECT_THAT(folder_.Names(), ElementsAre("kept", "y"));
}

}  // namespace
}  // namespace warpcall::client
