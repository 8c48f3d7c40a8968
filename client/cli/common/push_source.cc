#include "client/cli/common/push_source.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/common/input_file.h"
#include "client/cli/common/tensor_text.h"
#include "proto/common/manifest_comment.h"
#include "proto/common/status_macros.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

constexpr size_t kManifestBytesMax = size_t{1} << 20;

absl::StatusOr<std::string> ReadText(const std::string& path, size_t bytes_max) {
  ASSIGN_OR_RETURN(std::string text, ReadInputFile(path, bytes_max));
  if (absl::StripAsciiWhitespace(text).empty())
    return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return text;
}

std::string TextMember(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

void ReadFacts(const std::string& manifest, PushSource* source) {
  const json value = json::parse(manifest, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return;
  source->name = TextMember(value, "name");
  source->op = TextMember(value, "op");
  const auto types = value.find("types");
  if (types == value.end() || !types->is_array()) return;
  for (const json& type : *types)
    if (const auto read = ParseDataType(type.is_string() ? type.get<std::string>() : ""); read.ok())
      source->types.push_back(*read);
}

}  // namespace

const char kShortestManifest[] = R"manifest(// warpcall-kernel {
//   "name": "my_gelu", "op": "gelu", "types": ["float32"],
//   "code": {"kind": "cuda", "entry": "my_gelu"},
//   "args": ["x.ptr", "y.ptr", "elements:i64"],
//   "launch": {"grid": ["ceil(elements / 256)"], "block": [256]}
// }
)manifest";

absl::StatusOr<PushSource> ReadPushSource(const std::string& path,
                                          const std::string& manifest_path) {
  PushSource source{.path = path};
  ASSIGN_OR_RETURN(source.code, ReadText(path, size_t{client::kPushCodeBytesMax}));
  if (!manifest_path.empty()) {
    ASSIGN_OR_RETURN(source.manifest_json, ReadText(manifest_path, kManifestBytesMax));
    ReadFacts(source.manifest_json, &source);
    return source;
  }
  const absl::StatusOr<std::string> manifest = FindManifest(source.code);
  if (!manifest.ok())
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": ", manifest.status().message(), "; or give --manifest FILE.json"));
  ReadFacts(*manifest, &source);
  return source;
}

}  // namespace warpcall::cli
