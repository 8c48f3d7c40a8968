#include "kernels/compiled/cuda_code.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall::compiled {
namespace {

void Append(absl::string_view text, std::string* bytes) {
  const uint64_t size = text.size();
  bytes->append(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes->append(text.data(), text.size());
}

std::string Joined(absl::Span<const std::string> texts) {
  std::string bytes;
  for (const std::string& text : texts) Append(text, &bytes);
  return bytes;
}

absl::StatusOr<std::vector<std::string>> Split(absl::string_view bytes) {
  std::vector<std::string> texts;
  while (!bytes.empty()) {
    uint64_t size = 0;
    if (bytes.size() < sizeof(size))
      return absl::InternalError(
          absl::StrCat("a message ends ", bytes.size(), " bytes into a size of ", sizeof(size)));
    std::memcpy(&size, bytes.data(), sizeof(size));
    bytes.remove_prefix(sizeof(size));
    if (size > bytes.size())
      return absl::InternalError(
          absl::StrCat("a message has ", bytes.size(), " bytes where it names ", size));
    texts.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return texts;
}

absl::StatusOr<std::vector<std::string>> SplitInto(absl::string_view bytes, size_t count) {
  ASSIGN_OR_RETURN(std::vector<std::string> texts, Split(bytes));
  if (texts.size() == count) return texts;
  return absl::InternalError(
      absl::StrCat("a message has ", texts.size(), " texts instead of ", count));
}

constexpr char kYes[] = "1";

}  // namespace

std::string ToBytes(const CudaSource& source) {
  return Joined({source.text, Joined(source.options), source.file, Joined(source.entries),
                 source.with_ptx ? kYes : ""});
}

absl::StatusOr<CudaSource> ParseCudaSource(absl::string_view bytes) {
  ASSIGN_OR_RETURN(std::vector<std::string> texts, SplitInto(bytes, 5));
  CudaSource source;
  source.text = std::move(texts[0]);
  ASSIGN_OR_RETURN(source.options, Split(texts[1]));
  source.file = std::move(texts[2]);
  ASSIGN_OR_RETURN(source.entries, Split(texts[3]));
  source.with_ptx = texts[4] == kYes;
  if (!source.with_ptx && !texts[4].empty())
    return absl::InternalError(
        absl::StrCat("a message has ", texts[4].size(), " bytes as a truth"));
  return source;
}

std::string ToBytes(const CudaCode& code) {
  return Joined({code.cubin, code.ptx, code.log, Joined(code.kernels)});
}

absl::StatusOr<CudaCode> ParseCudaCode(absl::string_view bytes) {
  ASSIGN_OR_RETURN(std::vector<std::string> texts, SplitInto(bytes, 4));
  CudaCode code;
  code.cubin = std::move(texts[0]);
  code.ptx = std::move(texts[1]);
  code.log = std::move(texts[2]);
  ASSIGN_OR_RETURN(code.kernels, Split(texts[3]));
  return code;
}

}  // namespace warpcall::compiled
