#include "client/cpp/complete_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

// Below write(2)'s limit of 2^31 - 4096 a call.
constexpr size_t kTransferBytesMax = size_t{1} << 30;
constexpr mode_t kMode = 0666;  // the umask takes away from it

// Names of open files, /dev/stdout among them: another file of that name would be somewhere else.
bool NamesADescriptor(const std::string& path) {
  return absl::StartsWith(path, "/dev/") || absl::StartsWith(path, "/proc/");
}

std::string WithoutLinks(const std::string& path) {
  char* const resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return path;
  std::string text(resolved);
  std::free(resolved);
  return text;
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
  if (file.in_place_) return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : file.Failed();
  return file.Open();
}

CompleteFile::CompleteFile(const std::string& path)
    : path_(path),
      exists_(stat(path.c_str(), &facts_) == 0),
      in_place_(exists_ && !S_ISDIR(facts_.st_mode) &&
                (!S_ISREG(facts_.st_mode) || NamesADescriptor(path))) {}

CompleteFile::CompleteFile(const std::string& name, int descriptor)
    : path_(name), exists_(true), in_place_(true), descriptor_(descriptor) {}

CompleteFile::~CompleteFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!partial_.empty()) unlink(partial_.c_str());
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
  if (exists_ && S_ISDIR(facts_.st_mode)) errno = EISDIR;
  if (exists_ && (S_ISDIR(facts_.st_mode) || access(path_.c_str(), W_OK) != 0)) return Failed();
  target_ = WithoutLinks(path_);
  static std::atomic<int64_t> count{0};
  do {
    const std::string partial = absl::StrCat(target_, ".", getpid(), "-", ++count, ".part");
    descriptor_ = open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
    if (descriptor_ >= 0) partial_ = partial;
  } while (descriptor_ < 0 && errno == EEXIST);  // of a process that was killed
  if (descriptor_ < 0) return Failed();
  if (exists_ && fchmod(descriptor_, facts_.st_mode & 07777) != 0) return Failed();
  return absl::OkStatus();
}

absl::Status CompleteFile::Write(absl::Span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(descriptor_, bytes.data(), std::min(bytes.size(), kTransferBytesMax));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failed();
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

absl::Status CompleteFile::Commit() {
  // Some file systems report a full disk only here.
  if (close(std::exchange(descriptor_, -1)) != 0) return Failed();
  if (in_place_) return absl::OkStatus();
  if (rename(partial_.c_str(), target_.c_str()) != 0) return Failed();
  partial_.clear();
  return absl::OkStatus();
}

}  // namespace warpcall::client
