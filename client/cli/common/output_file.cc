#include "client/cli/common/output_file.h"

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/cli/common/options.h"
#include "client/cli/common/progress.h"
#include "client/cpp/complete_file.h"
#include "proto/common/status_macros.h"
#include "warpcall/npy.h"

namespace warpcall::cli {

namespace {

namespace fs = std::filesystem;

// Without links and dots; empty where the system does not say.
fs::path PlaceOf(const std::string& name) {
  std::error_code error;
  const fs::path absolute = fs::absolute(name, error);
  if (error) return {};
  const fs::path place = fs::weakly_canonical(absolute, error);
  return error ? fs::path() : place;
}

bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code none;  // where one does not exist
  if (a == b || fs::equivalent(a, b, none)) return true;
  const fs::path place = PlaceOf(a);
  return !place.empty() && place == PlaceOf(b);
}

}  // namespace

absl::Status CheckApart(const std::vector<NamedFile>& files) {
  for (size_t i = 0; i < files.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (!files[i].name.empty() && !files[j].name.empty() &&
          IsSameFile(files[i].name, files[j].name))
        return absl::InvalidArgumentError(absl::StrCat(files[j].option, " and ", files[i].option,
                                                       " name the same file: ", files[i].name));
  return absl::OkStatus();
}

bool NamesStdout(absl::string_view name) {
  return name == kStandardStream || name == "/dev/stdout" || name == "/dev/fd/1" ||
         name == "/proc/self/fd/1";
}

absl::Status CheckTensorOutput(const std::string& path, bool json) {
  if (path.empty()) return absl::InvalidArgumentError("--output is empty");
  if (!NamesStdout(path)) return CheckOutput(path);
  if (json) return absl::InvalidArgumentError("--json and --output - both want stdout");
  if (isatty(STDOUT_FILENO) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--output - writes bytes to stdout, which is a terminal: send it to a file or a program");
}

absl::Status WriteTensor(const std::string& path, const client::Tensor& tensor) {
  const Progress progress(absl::StrCat("writing ", path));
  return NamesStdout(path) ? client::WriteNpy(STDOUT_FILENO, "stdout", tensor)
                           : client::WriteNpy(path, tensor);
}

CleanEnd::CleanEnd()
    : interrupt_([](int signal) {
        client::CompleteFile::RemoveAllPartial();
        raise(signal);  // which nobody handles any more
      }) {}

absl::Status CheckOutput(const std::string& path) {
  const CleanEnd clean_end;
  return path.empty() ? absl::OkStatus() : client::CompleteFile::Check(path);
}

absl::Status WriteOutput(const std::string& path, absl::string_view bytes) {
  const CleanEnd clean_end;
  ASSIGN_OR_RETURN(const std::unique_ptr<client::CompleteFile> file,
                   client::CompleteFile::Create(path));
  RETURN_IF_ERROR(file->Write({bytes.data(), bytes.size()}));
  return file->Commit();
}

}  // namespace warpcall::cli
