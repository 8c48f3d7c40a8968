#include "client/cli/common/output_file.h"

#include <memory>

#include "client/cpp/complete_file.h"
#include "kernels/common/status_macros.h"

namespace warpcall::cli {

absl::Status CheckOutput(const std::string& path) {
  return path.empty() ? absl::OkStatus() : client::CompleteFile::Check(path);
}

absl::Status WriteOutput(const std::string& path, absl::string_view bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<client::CompleteFile> file,
                   client::CompleteFile::Create(path));
  RETURN_IF_ERROR(file->Write({bytes.data(), bytes.size()}));
  return file->Commit();
}

}  // namespace warpcall::cli
