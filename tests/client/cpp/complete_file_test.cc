#include "client/cpp/complete_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "tests/temp_folder.h"
#include "warpcall/npy.h"

namespace warpcall::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ReadFile;
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

  static void ExpectRefused(const std::string& path, const std::string& why) {
    for (const absl::Status& status :
         {CompleteFile::Check(path), CompleteFile::Create(path).status()})
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("can't write " + path), HasSubstr(why)));
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

TEST_F(CompleteFileTest, FollowsLinksToWhatIsNotThereYet) {
  const std::string link = folder_.Path("link");
  std::filesystem::create_symlink("link2", link);
  std::filesystem::create_directory(folder_.Path("to"));
  std::filesystem::create_symlink("to/../to/y", folder_.Path("link2"));
  EXPECT_TRUE(CompleteFile::Check(link).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("to/y")));
  Fill(link, "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.Path("link2")));
  EXPECT_EQ(ReadFile(folder_.Path("to/y")), "new");
  EXPECT_THAT(folder_.Names(), ElementsAre("link", "link2", "to"));

  std::filesystem::create_symlink("nowhere/y", folder_.Path("lost"));
  std::filesystem::create_symlink("ring", folder_.Path("ring"));
  for (const char* const name : {"lost", "ring"}) ExpectRefused(folder_.Path(name), "");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.Path("ring")));
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
  std::ofstream(path_) << "old";
  std::filesystem::create_directory(folder_.Path("folder"));
  for (const char* const name : {"no/y", "", "folder", "y/y"})
    ExpectRefused(folder_.Path(name), "");
  ExpectRefused("", "");

  const std::string socket_path = folder_.Path("s");
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  struct sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  socket_path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<struct sockaddr*>(&name), sizeof(name)), 0);
  ExpectRefused(socket_path, "No such device or address");
  close(listener);
}

// Without this check a program would get rename(2)'s error after it has written everything.
TEST_F(CompleteFileTest, WhatNoFileCanTakeThePlaceOfIsRefusedBefore) {
  if (geteuid() != 0) GTEST_SKIP() << "makes files of several users, as root";
  const std::string folder = folder_.Path("sticky");
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/y") << "old";
  chmod((folder + "/y").c_str(), 0666);
  chmod(folder.c_str(), 01777);
  chmod(folder_.Path("").c_str(), 0755);
  std::thread other([&] {
    // Changes this thread's user only, unlike the C library's seteuid(2).
    ASSERT_EQ(syscall(SYS_setresuid, -1, 65534, -1), 0);
    ExpectRefused(folder + "/y", "sticky");
    Fill(folder + "/own", "one");
    Fill(folder + "/own", "two");
  });
  other.join();
  EXPECT_EQ(ReadFile(folder + "/y"), "old");
  EXPECT_EQ(ReadFile(folder + "/own"), "two");
}

TEST_F(CompleteFileTest, AMountPointIsRefusedBefore) {
  std::ofstream(path_) << "old";
  std::thread other([&] {
    // Mounts for this thread only; no other namespace sees the mount.
    if (unshare(CLONE_FS | CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(path_.c_str(), path_.c_str(), nullptr, MS_BIND, nullptr) != 0)
      GTEST_SKIP() << "no mounts: " << strerror(errno);
    ExpectRefused(path_, "mount point");
  });
  other.join();
  EXPECT_EQ(ReadFile(path_), "old");
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
