#include "server/system/small_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class SmallFileTest : public ::testing::Test {
 protected:
  // Error of reading the file. A call that blocks is ended by the test's time limit.
  static std::string Wrong(const std::string& path) {
    return std::string(ReadSmallFile("flag", path).status().message());
  }

  testing::TempFolder folder_;
  const std::string path_ = folder_.Path("file");
};

TEST_F(SmallFileTest, IsReadWholeUpToItsLimit) {
  const std::string text(size_t{1} << 20, 'x');
  std::ofstream(path_) << text;
  EXPECT_EQ(*ReadSmallFile("flag", path_), text);
  std::ofstream(path_, std::ios::app) << "y";
  EXPECT_EQ(Wrong(path_), absl::StrCat("--flag: ", path_, ": has more than 1048576 bytes"));
  EXPECT_EQ(ReadSmallFile("flag", path_, 2 << 20)->size(), text.size() + 1);
  std::ofstream(path_, std::ios::trunc);
  EXPECT_EQ(*ReadSmallFile("flag", path_), "");
}

TEST_F(SmallFileTest, AFileThatIsMissingIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(ReadSmallFile("flag", path_).status()));
  EXPECT_EQ(Wrong(path_), absl::StrCat("--flag: ", path_, ": No such file or directory"));
  EXPECT_TRUE(absl::IsUnavailable(ReadSmallFile("flag", path_ + "/in/a/file").status()) ||
              absl::IsNotFound(ReadSmallFile("flag", path_ + "/in/a/file").status()));
}

// A FIFO that nobody writes to would be waited for.
TEST_F(SmallFileTest, WhatIsNoRegularFileIsNamedAndNotOpened) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Wrong(path_), absl::StrCat("--flag: ", path_, ": is a FIFO, not a regular file"));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckRegularFile("flag", path_)));
  EXPECT_THAT(Wrong(folder_.Path("")), EndsWith(": is a directory, not a regular file"));
  EXPECT_EQ(Wrong("/dev/zero"), "--flag: /dev/zero: is a character device, not a regular file");
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  folder_.Path("socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_THAT(Wrong(folder_.Path("socket")), EndsWith(": is a socket, not a regular file"));
  close(listener);
}

// Kubernetes mounts secrets so: a link to a file in a folder that is a link.
TEST_F(SmallFileTest, LinksLeadToRegularFiles) {
  ASSERT_EQ(mkdir(folder_.Path("..data1").c_str(), 0700), 0);
  std::ofstream(folder_.Path("..data1") + "/tokens") << "alice";
  ASSERT_EQ(symlink("..data1", folder_.Path("..data").c_str()), 0);
  ASSERT_EQ(symlink("..data/tokens", folder_.Path("tokens").c_str()), 0);
  EXPECT_EQ(*ReadSmallFile("flag", folder_.Path("tokens")), "alice");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ASSERT_EQ(symlink("file", folder_.Path("link").c_str()), 0);
  EXPECT_THAT(Wrong(folder_.Path("link")), HasSubstr("is a FIFO"));
}

// The system says 0 for their size.
TEST_F(SmallFileTest, FilesWhoseSizeIsNotKnownAreRead) {
  EXPECT_THAT(*ReadSmallFile("flag", "/proc/self/status"), HasSubstr("Pid:"));
}

}  // namespace
}  // namespace warpcall
