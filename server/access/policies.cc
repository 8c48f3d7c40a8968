#include "server/access/policies.h"

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/system/small_file.h"

namespace warpcall {

absl::StatusOr<std::unique_ptr<Policies>> Policies::Open(const std::string& file,
                                                         Policy::Names methods) {
  std::unique_ptr<Policies> policies(new Policies(file, std::move(methods)));
  RETURN_IF_ERROR(policies->ReadAgain().status());
  return policies;
}

absl::StatusOr<std::string> Policies::ReadAgain() {
  const absl::MutexLock turn(&reading_);
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile("policy_file", file_));
  absl::StatusOr<PolicyTable> parsed = PolicyTable::Parse(text, methods_);
  if (!parsed.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("--policy_file: ", file_, ": ", parsed.status().message()));
  auto table = std::make_shared<const PolicyTable>(*std::move(parsed));
  const absl::MutexLock lock(&mutex_);
  table_ = std::move(table);
  return absl::StrCat("policies of ", table_->size(), " principals",
                      table_->Of("") == nullptr ? "" : ", and a default");
}

std::shared_ptr<const PolicyTable> Policies::table() const {
  const absl::MutexLock lock(&mutex_);
  return table_;
}

std::vector<std::string> Policies::labels() const { return table()->labels(); }

std::shared_ptr<const Policy> Policies::Of(absl::string_view name) const {
  const absl::MutexLock lock(&mutex_);
  WARPCALL_DCHECK(table_ != nullptr);
  return table_->Of(name);
}

}  // namespace warpcall
