#include "client/cpp/complete_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

namespace fs = std::filesystem;

// Below write(2)'s limit of 2^31 - 4096 a call.
constexpr size_t kTransferBytesMax = size_t{1} << 30;
constexpr mode_t kMode = 0666;  // the umask takes away from it

// Names of open files, /dev/stdout among them: another file of that name would be somewhere else.
bool NamesADescriptor(const std::string& path) {
  return absl::StartsWith(path, "/dev/") || absl::StartsWith(path, "/proc/");
}

// Returns the path of the existing file, or of the one to create, with links resolved.
std::string FollowLinks(const std::string& path) {
  constexpr int kLinksMax = 40;  // the system's own limit
  fs::path place = path;
  for (int links = 0; links < kLinksMax; ++links) {
    std::error_code none;
    const fs::path to = fs::read_symlink(place, none);
    if (none) break;
    place = place.parent_path() / to;
  }
  return place.string();
}

// The names of this process's files that are not committed.
struct PartialNames {
  absl::Mutex mutex;  // held while a file gets or loses such a name
  std::set<std::string> names ABSL_GUARDED_BY(mutex);
};

PartialNames& Partial() {
  static PartialNames& partial = *new PartialNames;
  return partial;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CompleteFile>> CompleteFile::Create(const std::string& path) {
  std::unique_ptr<CompleteFile> file(new CompleteFile(path));
  RETURN_IF_ERROR(file->Open());
  return file;
}

absl::StatusOr<std::unique_ptr<CompleteFile>> CompleteFile::Borrow(int descriptor,
                                                                   const std::string& name) {
  std::unique_ptr<CompleteFile> file(new CompleteFile(name, fcntl(descriptor, F_DUPFD_CLOEXEC, 0)));
  if (file->descriptor_ < 0) return file->Failed();
  return file;
}

absl::Status CompleteFile::Check(const std::string& path) {
  CompleteFile file(path);
  // To open a pipe is to be heard at its other end.
  if (!file.in_place_) return file.Open();
  const bool socket = S_ISSOCK(file.facts_.st_mode);
  if (!socket && access(path.c_str(), W_OK) == 0) return absl::OkStatus();
  if (socket) errno = ENXIO;  // as open(2) says of them
  return file.Failed();
}

void CompleteFile::RemoveAllPartial() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Partial().mutex.Lock();  // for good
  for (const std::string& name : Partial().names) unlink(name.c_str());
}

CompleteFile::CompleteFile(const std::string& path)
    : path_(path),
      stat_errno_(stat(path.c_str(), &facts_) == 0 ? 0 : errno),
      exists_(stat_errno_ == 0),
      in_place_(exists_ && !S_ISDIR(facts_.st_mode) &&
                (!S_ISREG(facts_.st_mode) || NamesADescriptor(path))) {}

CompleteFile::CompleteFile(const std::string& name, int descriptor)
    : path_(name), stat_errno_(0), exists_(true), in_place_(true), descriptor_(descriptor) {}

CompleteFile::~CompleteFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (partial_.empty()) return;
  absl::MutexLock lock(&Partial().mutex);
  unlink(partial_.c_str());
  Partial().names.erase(partial_);
}

absl::Status CompleteFile::Failed() const {
  return absl::ErrnoToStatus(errno, absl::StrCat("can't write ", path_));
}

absl::Status CompleteFile::Open() {
  if (!in_place_) return OpenTemporary();
  descriptor_ = open(path_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  return descriptor_ >= 0 ? absl::OkStatus() : Failed();
}

absl::Status CompleteFile::OpenTemporary() {
  if (!exists_ && (path_.empty() || stat_errno_ != ENOENT)) {
    errno = stat_errno_;
    return Failed();
  }
  target_ = FollowLinks(path_);
  if (exists_) RETURN_IF_ERROR(CheckReplaceable());
  static std::atomic<int64_t> count{0};
  absl::MutexLock lock(&Partial().mutex);
  do {
    const std::string partial = absl::StrCat(target_, ".", getpid(), "-", ++count, ".part");
    descriptor_ = open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
    if (descriptor_ >= 0) partial_ = partial;
  } while (descriptor_ < 0 && errno == EEXIST);  // name left over from a killed process
  if (descriptor_ < 0) return Failed();
  Partial().names.insert(partial_);
  if (exists_ && fchmod(descriptor_, facts_.st_mode & 07777) != 0) return Failed();
  return absl::OkStatus();
}

// Reports early the errors that rename(2) would give only at the end.
absl::Status CompleteFile::CheckReplaceable() const {
  if (S_ISDIR(facts_.st_mode)) errno = EISDIR;
  if (S_ISDIR(facts_.st_mode) || access(path_.c_str(), W_OK) != 0) return Failed();
  struct statx mounted = {};
  if (statx(AT_FDCWD, target_.c_str(), AT_SYMLINK_NOFOLLOW, 0, &mounted) == 0 &&
      (mounted.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0)
    return absl::FailedPreconditionError(absl::StrCat(
        "can't write ", path_, ": it is a mount point, and no file can take its place"));
  const std::string folder = fs::path(target_).parent_path().string();
  struct stat facts = {};
  if (stat(folder.empty() ? "." : folder.c_str(), &facts) != 0) return Failed();
  const uid_t user = geteuid();
  if ((facts.st_mode & S_ISVTX) != 0 && user != 0 && user != facts.st_uid && user != facts_.st_uid)
    return absl::PermissionDeniedError(absl::StrCat(
        "can't write ", path_, ": another user owns it, and its folder has the sticky bit set"));
  return absl::OkStatus();
}

absl::Status CompleteFile::Write(absl::Span<const char> bytes) {
  WARPCALL_DCHECK(descriptor_ >= 0, path_);
  while (!bytes.empty()) {
    const ssize_t put = write(descriptor_, bytes.data(), std::min(bytes.size(), kTransferBytesMax));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failed();
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

absl::Status CompleteFile::Commit() {
  WARPCALL_DCHECK(descriptor_ >= 0, path_);
  // Some file systems report a full disk only here.
  if (close(std::exchange(descriptor_, -1)) != 0) return Failed();
  if (in_place_) return absl::OkStatus();
  absl::MutexLock lock(&Partial().mutex);
  if (rename(partial_.c_str(), target_.c_str()) != 0) return Failed();
  Partial().names.erase(std::exchange(partial_, ""));
  return absl::OkStatus();
}

}  // namespace warpcall::client
