#include "kernels/source/files.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/source/embedded.h"

namespace warpcall {
namespace {

struct File {
  absl::string_view path;  // as it was embedded; empty: there is none
  absl::string_view text;
};

// The bytes up to the next zero, which are taken off `rest`.
absl::string_view TakeString(absl::string_view* rest) {
  const absl::string_view taken = rest->substr(0, rest->find('\0'));
  rest->remove_prefix(taken.size() + 1);
  return taken;
}

bool Names(absl::string_view path, absl::string_view file) {
  return absl::ConsumeSuffix(&path, file) && (path.empty() || absl::EndsWith(path, "/"));
}

File Find(absl::string_view path) {
  for (absl::string_view rest : {EmbeddedFiles(), EmbeddedFilesOfFolders()}) {
    while (!rest.empty()) {
      const absl::string_view name = TakeString(&rest);
      const absl::string_view text = TakeString(&rest);
      if (Names(path, name)) return {name, text};
    }
  }
  return {};
}

std::string LanguageOf(absl::string_view path) {
  if (absl::EndsWith(path, ".py")) return "triton";
  return absl::EndsWith(path, ".cu") || absl::EndsWith(path, ".cuh") ? "cuda" : "cpp";
}

// The folder, with its slash.
absl::string_view FolderOf(absl::string_view path) { return path.substr(0, path.rfind('/') + 1); }

std::vector<absl::string_view> IncludesOf(absl::string_view text) {
  std::vector<absl::string_view> includes;
  for (absl::string_view line : absl::StrSplit(text, '\n'))
    if (absl::ConsumePrefix(&line, "#include \""))
      includes.push_back(line.substr(0, line.find('"')));
  return includes;
}

}  // namespace

std::vector<SourceFile> FilesOf(absl::string_view path) {
  std::vector<File> found;
  std::set<absl::string_view> met;
  const auto meet = [&](absl::string_view name) {
    const File file = Find(name);
    if (!file.path.empty() && met.insert(file.path).second) found.push_back(file);
  };
  meet(path);
  if (found.empty()) return {};
  absl::string_view stem = found[0].path;
  if (absl::ConsumeSuffix(&stem, "_triton.cc")) meet(absl::StrCat(stem, "_triton.py"));
  const absl::string_view folder = FolderOf(found[0].path);
  for (size_t i = 0; i < found.size(); ++i)
    for (const absl::string_view include : IncludesOf(found[i].text)) {
      const absl::string_view place = FolderOf(include);
      if (place.empty()) meet(absl::StrCat(folder, include));
      if (Names(place, folder)) meet(include);
    }
  std::vector<SourceFile> files;
  for (const File& file : found)
    files.push_back({std::string(file.path), LanguageOf(file.path), std::string(file.text)});
  return files;
}

}  // namespace warpcall
