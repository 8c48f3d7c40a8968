// Files that outlive their process, and files that others broke, or may have broken.
#include "kernels/compiled/disk_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/atomic_file.h"
#include "kernels/compiled/sha256.h"
#include "tests/temp_folder.h"

namespace warpcall::compiled {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using testing::ReadFile;
using ::testing::SizeIs;
using testing::TempFolder;

std::string HexOf(absl::string_view text) {
  const Sha256 hash = Sha256Of(text);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(hash.data()), hash.size()));
}

// NIST's examples, and the lengths around which the padding takes a block more.
TEST(Sha256Test, IsTheStandards) {
  EXPECT_EQ(HexOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HexOf(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(HexOf(std::string(55, 'a')),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(HexOf(std::string(64, 'a')),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

class DiskCacheTest : public ::testing::Test {
 protected:
  static Sha256 Key(int number) { return Sha256Of(absl::StrCat("key ", number)); }
  static std::string Data(int number) {
    return absl::StrCat("data ", number, std::string(1000, static_cast<char>(number)));
  }
  std::string PathOf(int number) const {
    return folder_.Path(HexOf(absl::StrCat("key ", number)) + ".cubin");
  }
  DiskCache Open(const DiskCache::Limits& limits = {}) const {
    return *DiskCache::Open(folder_.Path("."), limits);
  }
  static void SetAge(const std::string& path, int64_t seconds) {
    const timespec when = {time(nullptr) - seconds, 0};
    const timespec times[] = {when, when};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0) << path;
  }

  TempFolder folder_;
};

TEST_F(DiskCacheTest, WhatWasPutIsThereForOthersAndLater) {
  const DiskCache first = Open();
  EXPECT_EQ(first.Get(Key(1)), std::nullopt);
  first.Put(Key(1), Data(1));
  first.Put(Key(2), "");
  const DiskCache second = Open();
  EXPECT_THAT(second.Get(Key(1)), Optional(Data(1)));
  EXPECT_THAT(second.Get(Key(2)), Optional(std::string()));
  EXPECT_EQ(second.Get(Key(3)), std::nullopt);
  first.Put(Key(1), Data(4));
  EXPECT_THAT(second.Get(Key(1)), Optional(Data(4)));
  EXPECT_EQ(second.bytes(),
            static_cast<int64_t>(ReadFile(PathOf(1)).size() + ReadFile(PathOf(2)).size()));
  EXPECT_THAT(folder_.Names(), SizeIs(2));
}

TEST_F(DiskCacheTest, AFileOfWhichAnyBitIsWrongIsNotTakenButRemoved) {
  const DiskCache cache = Open();
  cache.Put(Key(1), Data(1));
  const std::string right = ReadFile(PathOf(1));
  const auto refused = [&](const std::string& content) {
    std::ofstream(PathOf(1), std::ios::binary) << content;
    EXPECT_EQ(cache.Get(Key(1)), std::nullopt);
    return folder_.Names().empty();
  };
  for (size_t at = 0; at < right.size(); at += at < 100 ? 1 : 97) {
    std::string wrong = right;
    wrong[at] = static_cast<char>(wrong[at] ^ 1 << at % 8);
    EXPECT_TRUE(refused(wrong)) << "byte " << at;
  }
  for (const size_t bytes : {size_t{0}, size_t{8}, size_t{87}, size_t{88}, right.size() - 1})
    EXPECT_TRUE(refused(right.substr(0, bytes))) << bytes << " bytes";
  EXPECT_TRUE(refused(right + "x"));
  EXPECT_TRUE(refused(right + std::string(DiskCache::kDataBytesMax, 'x')));
  std::ofstream(PathOf(2), std::ios::binary) << right;
  EXPECT_EQ(cache.Get(Key(2)), std::nullopt) << "it is another key's";
  std::ofstream(PathOf(1), std::ios::binary) << right;
  EXPECT_THAT(cache.Get(Key(1)), Optional(Data(1)));
}

TEST_F(DiskCacheTest, WhatWasNotUsedForLongestMakesRoom) {
  Open().Put(Key(0), Data(1));
  const auto bytes = static_cast<int64_t>(ReadFile(PathOf(0)).size());
  const DiskCache cache = Open({.bytes_max = 3 * bytes + 1, .files_max = 100});
  cache.Put(Key(1), Data(1));
  cache.Put(Key(2), Data(2));
  for (int key = 0; key < 3; ++key) SetAge(PathOf(key), 300 - 100 * key);
  EXPECT_THAT(cache.Get(Key(0)), Optional(Data(1)));  // and so is used last
  cache.Put(Key(3), Data(3));
  EXPECT_EQ(cache.Get(Key(1)), std::nullopt);
  for (const int key : {0, 2, 3}) EXPECT_NE(cache.Get(Key(key)), std::nullopt) << key;
  EXPECT_EQ(cache.bytes(), 3 * bytes);
  for (const int key : {0, 2, 3}) SetAge(PathOf(key), 100);
  Open({.bytes_max = 1 << 20, .files_max = 2}).Put(Key(4), Data(4));
  EXPECT_THAT(folder_.Names(), SizeIs(2));
  EXPECT_THAT(cache.Get(Key(4)), Optional(Data(4)));
}

TEST_F(DiskCacheTest, WhatIsTooLargeForOneFileIsNotKept) {
  const DiskCache cache = Open();
  cache.Put(Key(1), std::string(DiskCache::kDataBytesMax + 1, 'x'));
  EXPECT_THAT(folder_.Names(), IsEmpty());
  cache.Put(Key(1), std::string(DiskCache::kDataBytesMax, 'x'));
  EXPECT_THAT(cache.Get(Key(1)), Optional(SizeIs(DiskCache::kDataBytesMax)));
}

TEST_F(DiskCacheTest, OthersFilesStayAndUnfinishedOnesGoWhenTheirWritersMustBeGone) {
  for (const char* const name : {"notes.txt", "unfinished.old", "unfinished.new"}) {
    std::ofstream(folder_.Path(name)) << std::string(5000, 'x');
    SetAge(folder_.Path(name), 4000);
  }
  SetAge(folder_.Path("unfinished.new"), 3000);
  Open({.bytes_max = 1, .files_max = 1}).Put(Key(1), Data(1));
  EXPECT_THAT(folder_.Names(), ElementsAre("notes.txt", "unfinished.new"));
}

TEST_F(DiskCacheTest, FoldersThatCannotBeUsedAreRefusedWithTheReason) {
  std::ofstream(folder_.Path("file")) << "x";
  ASSERT_EQ(mkdir(folder_.Path("open").c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder_.Path("open").c_str(), 0777), 0);
  const auto message = [&](const std::string& name) {
    const absl::Status status = DiskCache::Open(folder_.Path(name)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("compile_cache: the folder \"", folder_.Path(name), "\"")));
    return std::string(status.message());
  };
  EXPECT_THAT(message("none/below"), HasSubstr("No such file or directory"));
  EXPECT_THAT(message("file"), HasSubstr("it is no folder"));
  EXPECT_THAT(message("file/below"), HasSubstr("Not a directory"));
  EXPECT_THAT(message("open"), HasSubstr("everybody may write to it"));
  const std::string nowhere = "/proc/self/task";
  EXPECT_THAT(std::string(DiskCache::Open(nowhere).status().message()),
              AllOf(HasSubstr(nowhere), HasSubstr("no file can be made there")));
  EXPECT_TRUE(DiskCache::Open(folder_.Path("new")).ok());
  struct stat made;
  ASSERT_EQ(stat(folder_.Path("new").c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, 0700u);
}

// A process of its own runs `body`; 0 is its exit status when that returns true.
pid_t InChild(absl::FunctionRef<bool()> body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body() ? 0 : 1);
  return pid;
}

int ExitOf(pid_t pid) {
  int status = -1;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(DiskCacheTest, ADiskThatIsFullOrGoneKeepsNothingAndHarmsNothing) {
  const DiskCache cache = Open();
  cache.Put(Key(1), Data(1));
  EXPECT_EQ(ExitOf(InChild([&] {
              // Writing beyond fails, as on a full disk.
              const rlimit full = {500, 500};
              std::signal(SIGXFSZ, SIG_IGN);
              if (setrlimit(RLIMIT_FSIZE, &full) != 0) return false;
              cache.Put(Key(1), Data(4));
              cache.Put(Key(2), Data(2));
              return cache.Get(Key(1)) == Data(1) && cache.Get(Key(2)) == std::nullopt;
            })),
            0);
  EXPECT_THAT(folder_.Names(), SizeIs(1)) << "nothing unfinished is left";
  const DiskCache gone = *DiskCache::Open(folder_.Path("gone"));
  ASSERT_EQ(rmdir(folder_.Path("gone").c_str()), 0);
  gone.Put(Key(1), Data(1));
  EXPECT_EQ(gone.Get(Key(1)), std::nullopt);
  EXPECT_EQ(gone.bytes(), 0);
}

// One process may evict a file that another is about to read; two may put one file at once.
TEST_F(DiskCacheTest, SeveralProcessesShareAFolder) {
  const DiskCache::Limits limits = {.bytes_max = 8000, .files_max = 5};
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child)
    children.push_back(InChild([&] {
      const DiskCache cache = Open(limits);
      for (int i = 0; i < 300; ++i) {
        const int key = (i * (child + 1)) % 10;
        const std::optional<std::string> found = cache.Get(Key(key));
        if (found.has_value() && *found != Data(key)) return false;
        if (!found.has_value()) cache.Put(Key(key), Data(key));
      }
      return true;
    }));
  for (const pid_t child : children) EXPECT_EQ(ExitOf(child), 0);
  const DiskCache cache = Open(limits);
  for (int key = 10; key < 15; ++key) cache.Put(Key(key), Data(key));
  EXPECT_THAT(folder_.Names(), SizeIs(5));
  EXPECT_LE(cache.bytes(), limits.bytes_max);
  int found = 0;
  for (int key = 0; key < 15; ++key) found += cache.Get(Key(key)).has_value() ? 1 : 0;
  EXPECT_EQ(found, 5) << "every file that is left is whole";
}

}  // namespace
}  // namespace warpcall::compiled

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
