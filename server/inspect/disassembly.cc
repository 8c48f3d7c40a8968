#include "server/inspect/disassembly.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall::inspect {
namespace {

// An in-memory file for programs that this process starts. Lives as long as this object.
class MemoryFile {
 public:
  static absl::StatusOr<MemoryFile> Write(absl::string_view bytes) {
    MemoryFile file(memfd_create("image", 0));
    if (file.fd_ < 0)
      return absl::InternalError(absl::StrCat("no file in memory: ", strerror(errno)));
    while (!bytes.empty()) {
      const ssize_t count = write(file.fd_, bytes.data(), bytes.size());
      if (count < 0) return absl::InternalError(absl::StrCat("writing: ", strerror(errno)));
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return file;
  }
  MemoryFile(MemoryFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }

  // Valid in processes that inherit the descriptor.
  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  explicit MemoryFile(int fd) : fd_(fd) {}

  int fd_;
};

// Text up to a limit.
class Text {
 public:
  explicit Text(size_t bytes_max) : bytes_max_(bytes_max) {}

  absl::Status Append(absl::string_view line) {
    absl::StrAppend(&text_, line, "\n");
    if (text_.size() <= bytes_max_) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("prints more of it than the limit of ", bytes_max_, " bytes"));
  }
  std::string Take() { return std::move(text_); }

 private:
  const size_t bytes_max_;
  std::string text_;
};

absl::StatusOr<std::string> SassOfImage(const MachineCode& code,
                                        const DisassemblyOptions& options) {
  ASSIGN_OR_RETURN(const std::string tool, FindTool("nvdisasm", options.folders));
  ASSIGN_OR_RETURN(const MemoryFile file, MemoryFile::Write(code.image));
  Text text(options.text_bytes);
  RETURN_IF_ERROR(RunTool({tool, "--print-code", file.path()}, options.limits,
                          [&](absl::string_view line) { return text.Append(line); }));
  return text.Take();
}

// Selects the lines of one kernel from cuobjdump's output. SASS has one section for each
// architecture, from a line with the kernel's name to the end of the section.
class SassOfKernel {
 public:
  SassOfKernel(absl::string_view entry, Text* text) : entry_(entry), text_(text) {}

  absl::Status Take(absl::string_view line) {
    const absl::string_view stripped = absl::StripLeadingAsciiWhitespace(line);
    if (absl::StartsWith(stripped, "code for ")) architecture_ = std::string(stripped);
    if (absl::StartsWith(line, "Fatbin ")) inside_ = false;
    if (absl::StartsWith(stripped, "Function : ")) {
      inside_ = absl::EndsWith(stripped, absl::StrCat(" ", entry_));
      if (inside_) RETURN_IF_ERROR(text_->Append(architecture_));
    }
    return inside_ ? text_->Append(line) : absl::OkStatus();
  }

 private:
  const absl::string_view entry_;
  Text* const text_;
  std::string architecture_;
  bool inside_ = false;
};

// PTX has the head of the module, and the kernel up to the brace that closes it.
class PtxOfKernel {
 public:
  PtxOfKernel(absl::string_view entry, Text* text) : entry_(entry), text_(text) {}

  absl::Status Take(absl::string_view line) {
    if (absl::StartsWith(line, ".version")) head_.clear();
    for (const char* const directive : {".version", ".target", ".address_size"})
      if (absl::StartsWith(line, directive)) absl::StrAppend(&head_, line, "\n");
    if (!inside_ && absl::StrContains(line, absl::StrCat(".entry ", entry_, "("))) {
      inside_ = true;
      RETURN_IF_ERROR(text_->Append(head_));
    }
    if (!inside_) return absl::OkStatus();
    const int64_t depth = depth_ + absl::c_count(line, '{') - absl::c_count(line, '}');
    inside_ = depth > 0 || depth_ == 0;
    depth_ = depth;
    return text_->Append(line);
  }

 private:
  const absl::string_view entry_;
  Text* const text_;
  std::string head_;
  int64_t depth_ = 0;  // open braces
  bool inside_ = false;
};

// `dump`: "-sass" or "-ptx".
template <typename Filter>
absl::StatusOr<std::string> Linked(const char* dump, const MachineCode& code,
                                   const DisassemblyOptions& options) {
  ASSIGN_OR_RETURN(const std::string tool, FindTool("cuobjdump", options.folders));
  Text text(options.text_bytes);
  Filter filter(code.entry, &text);
  RETURN_IF_ERROR(RunTool({tool, dump, "-fun", code.entry, options.program}, options.limits,
                          [&](absl::string_view line) { return filter.Take(line); }));
  std::string found = text.Take();
  if (!found.empty()) return found;
  return absl::NotFoundError(absl::StrCat(tool, " ", dump, " finds no such code in the program"));
}

SourceFile FileOf(const std::string& entry, const char* language,
                  absl::StatusOr<std::string> text) {
  if (!text.ok()) text = absl::StrCat("// Not shown: ", text.status().message(), "\n");
  // A proto's texts must be UTF-8, and the tools' output may not be.
  std::replace_if(
      text->begin(), text->end(), [](char c) { return !absl::ascii_isascii(c); }, '?');
  return {absl::StrCat(entry, ".", language), language, *std::move(text)};
}

}  // namespace

std::string ThisProgram() { return absl::StrCat("/proc/", getpid(), "/exe"); }

std::vector<SourceFile> Disassemble(const MachineCode& code, const DisassemblyOptions& options) {
  if (code.entry.empty()) return {};
  if (!code.image.empty()) return {FileOf(code.entry, "sass", SassOfImage(code, options))};
  return {FileOf(code.entry, "ptx", Linked<PtxOfKernel>("-ptx", code, options)),
          FileOf(code.entry, "sass", Linked<SassOfKernel>("-sass", code, options))};
}

}  // namespace warpcall::inspect
