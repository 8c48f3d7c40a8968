// A file in the folder of --compile_cache that another process wrote, or broke. The first byte
// chooses its origin: the input as it is, or a right file with some bytes changed and its end cut
// off.
#include <algorithm>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/compiled/disk_cache.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "tests/temp_folder.h"

namespace warpcall::testing {
namespace {

enum Choice : uint8_t { kWritten = 1, kCut = 2 };

struct Folder {
  TempFolder folder;
  compiled::DiskCache cache = *compiled::DiskCache::Open(folder.Path("."));
  compiled::Sha256 key = compiled::Sha256Of("key");
  std::string path;  // the key's file

  Folder() {
    cache.Put(key, "");
    path = folder.Path(folder.Names().at(0));
  }
  // The right file for these data.
  std::string FileOf(absl::string_view data) const {
    cache.Put(key, data);
    return ReadFile(path);
  }
};

std::string MadeUpFile(const Folder& folder, FuzzInput* decisions) {
  const uint8_t choice = decisions->Byte();
  if ((choice & kWritten) == 0) return std::string(decisions->Rest());
  const size_t data_bytes = decisions->Byte();
  std::string file = folder.FileOf(decisions->Take(data_bytes));
  for (int edits = decisions->Byte() % 8; edits > 0; --edits) {
    const size_t at = decisions->Number(2) % file.size();
    const absl::string_view change = decisions->Take(1 + decisions->Byte() % 8);
    file.replace(at, std::min(change.size(), file.size() - at), change.data(), change.size());
  }
  if ((choice & kCut) != 0) file.resize(decisions->Number(2) % (file.size() + 1));
  return file;
}

}  // namespace

std::string FuzzCubinFile(absl::string_view input) {
  static const Folder folder;  // goes when the process ends
  FuzzInput decisions(input);
  const std::string file = MadeUpFile(folder, &decisions);
  std::ofstream(folder.path, std::ios::binary) << file;
  const std::optional<std::string> data = folder.cache.Get(folder.key);
  if (!data.has_value())
    return folder.folder.Names().empty() ? "" : "a file that is not taken stays";
  return folder.FileOf(*data) == file ? "" : absl::StrCat(data->size(), " bytes of another file");
}

}  // namespace warpcall::testing
