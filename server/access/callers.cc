#include "server/access/callers.h"

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/system/small_file.h"

namespace warpcall {

absl::StatusOr<std::unique_ptr<Callers>> Callers::Open(const std::string& token_file) {
  std::unique_ptr<Callers> callers(new Callers(token_file));
  RETURN_IF_ERROR(callers->ReadAgain().status());
  return callers;
}

absl::StatusOr<std::shared_ptr<const TokenTable>> Callers::Read() const {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile("token_file", file_));
  absl::StatusOr<TokenTable> table = TokenTable::Parse(text);
  if (!table.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("--token_file: ", file_, ": ", table.status().message()));
  return std::make_shared<const TokenTable>(*std::move(table));
}

absl::StatusOr<std::string> Callers::ReadAgain() {
  const absl::MutexLock turn(&reading_);
  std::shared_ptr<const TokenTable> table;
  ASSIGN_OR_RETURN(table, Read());
  const absl::MutexLock lock(&mutex_);
  table_ = std::move(table);
  return absl::StrCat(table_->size(), table_->size() == 1 ? " token" : " tokens",
                      table_->weak() == 0
                          ? ""
                          : absl::StrCat(", ", table_->weak(), " of fewer than ", kTokenBytesGood,
                                         " characters, which can be guessed"));
}

std::set<std::string> Callers::names() const {
  const absl::MutexLock lock(&mutex_);
  return table_->names();
}

bool Callers::AnyWeak() const {
  const absl::MutexLock lock(&mutex_);
  return table_->weak() > 0;
}

absl::StatusOr<std::string> Callers::PrincipalOf(absl::string_view authorization) const {
  ASSIGN_OR_RETURN(const absl::string_view token, BearerToken(authorization));
  std::shared_ptr<const TokenTable> table;
  {
    const absl::MutexLock lock(&mutex_);
    table = table_;
  }
  return table->PrincipalOf(token);
}

}  // namespace warpcall
