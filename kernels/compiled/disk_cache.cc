#include "kernels/compiled/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/atomic_file.h"
#include "proto/common/descriptor.h"
#include "proto/common/status_macros.h"

namespace warpcall::compiled {
namespace {

constexpr char kSuffix[] = ".cubin";
constexpr char kUnfinishedPrefix[] = "unfinished.";
// Age at which an unfinished file is a dead process's. No process writes a file for that long.
constexpr int64_t kUnfinishedSeconds = 3600;

// The file: this, then the data. Little-endian, as all machines with GPUs are.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
  uint64_t data_bytes;
  Sha256 key;
  Sha256 checksum;  // SHA-256 of the data
};
static_assert(sizeof(Header) == 88);

Header HeaderOf(const Sha256& key, absl::string_view data) {
  return {.magic = {'w', 'a', 'r', 'p', 'c', 'u', 'b', 'n'},
          .version = 1,
          .reserved = 0,
          .data_bytes = data.size(),
          .key = key,
          .checksum = Sha256Of(data)};
}

bool ReadAll(int fd, char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = read(fd, data, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

absl::StatusOr<AtomicFile> CreateUnfinished(const std::string& folder) {
  return AtomicFile::Create(absl::StrCat(folder, "/", kUnfinishedPrefix));
}

struct File {
  std::string path;
  int64_t bytes;
  timespec used;
  bool unfinished;
};

// Returns the folder's files that belong to a cache.
std::vector<File> FilesIn(const std::string& folder) {
  std::vector<File> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(folder.c_str()), closedir);
  if (directory == nullptr) return files;
  while (const dirent* const entry = readdir(directory.get())) {
    const absl::string_view name = entry->d_name;
    const bool unfinished = absl::StartsWith(name, kUnfinishedPrefix);
    if (!unfinished && !absl::EndsWith(name, kSuffix)) continue;
    struct stat status;
    if (fstatat(dirfd(directory.get()), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode))
      continue;
    files.push_back({absl::StrCat(folder, "/", name), status.st_size, status.st_mtim, unfinished});
  }
  return files;
}

absl::Status Unusable(absl::string_view folder, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("compile_cache: the folder \"", folder, "\" can't be used: ", why));
}

absl::Status CheckFolder(const std::string& folder) {
  struct stat status;
  if (stat(folder.c_str(), &status) != 0) return Unusable(folder, strerror(errno));
  if (!S_ISDIR(status.st_mode)) return Unusable(folder, "it is no folder");
  // Anyone who can write to the folder chooses the code that runs on the GPU.
  if ((status.st_mode & S_IWOTH) != 0)
    return Unusable(folder, "everybody may write to it; take that away by chmod o-w");
  const absl::Status made = CreateUnfinished(folder).status();
  if (made.ok()) return made;
  return Unusable(folder, absl::StrCat("no file can be made there: ", made.message()));
}

}  // namespace

absl::StatusOr<DiskCache> DiskCache::Open(const std::string& folder, const Limits& limits) {
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return Unusable(folder, absl::StrCat("it can't be made: ", strerror(errno)));
  RETURN_IF_ERROR(CheckFolder(folder));
  return DiskCache(folder, limits);
}

absl::Status DiskCache::Check(const std::string& folder) {
  struct stat status;
  if (stat(folder.c_str(), &status) == 0 || errno != ENOENT) return CheckFolder(folder);
  const std::string parent = std::filesystem::path(folder + "/.").parent_path().parent_path();
  if (access(parent.empty() ? "." : parent.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return Unusable(folder, absl::StrCat("it can't be made: ", strerror(errno)));
}

std::string DiskCache::PathOf(const Sha256& key) const {
  const absl::string_view bytes(reinterpret_cast<const char*>(key.data()), key.size());
  return absl::StrCat(folder_, "/", absl::BytesToHexString(bytes), kSuffix);
}

std::optional<std::string> DiskCache::Get(const Sha256& key) const {
  const std::string path = PathOf(key);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status;
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return std::nullopt;
  Header found;
  const auto bytes = static_cast<size_t>(status.st_size);
  if (bytes >= sizeof(found) && bytes - sizeof(found) <= kDataBytesMax &&
      ReadAll(file.get(), reinterpret_cast<char*>(&found), sizeof(found))) {
    std::string data(bytes - sizeof(found), '\0');
    if (ReadAll(file.get(), data.data(), data.size())) {
      const Header expected = HeaderOf(key, data);
      if (std::memcmp(&found, &expected, sizeof(found)) == 0) {
        futimens(file.get(), nullptr);
        return data;
      }
    }
  }
  unlink(path.c_str());
  return std::nullopt;
}

void DiskCache::Put(const Sha256& key, absl::string_view data) const {
  if (data.size() > kDataBytesMax) return;
  absl::StatusOr<AtomicFile> file = CreateUnfinished(folder_);
  if (!file.ok()) return;
  const Header header = HeaderOf(key, data);
  // The file is not synced to disk: a truncated file does not match its checksum.
  if (file->Write({reinterpret_cast<const char*>(&header), sizeof(header)}).ok() &&
      file->Write(data).ok() && file->Commit(PathOf(key)).ok())
    Trim();
}

void DiskCache::Trim() const {
  std::vector<File> files = FilesIn(folder_);
  const int64_t now = time(nullptr);
  int64_t bytes = 0;
  int64_t count = 0;
  for (const File& file : files) {
    if (file.unfinished) {
      if (file.used.tv_sec < now - kUnfinishedSeconds) unlink(file.path.c_str());
      continue;
    }
    bytes += file.bytes;
    ++count;
  }
  if (bytes <= limits_.bytes_max && count <= limits_.files_max) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const File& file : files) {
    if (bytes <= limits_.bytes_max && count <= limits_.files_max) return;
    if (file.unfinished) continue;
    // Another process may have done it.
    unlink(file.path.c_str());
    bytes -= file.bytes;
    --count;
  }
}

int64_t DiskCache::bytes() const {
  int64_t bytes = 0;
  for (const File& file : FilesIn(folder_)) bytes += file.bytes;
  return bytes;
}

}  // namespace warpcall::compiled
