#include "client/cli/common/push_source.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/common/input_file.h"
#include "client/cli/common/tensor_text.h"
#include "proto/common/status_macros.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

constexpr absl::string_view kManifestMark = "warpcall-kernel";
constexpr size_t kManifestBytesMax = size_t{1} << 20;

absl::StatusOr<std::string> ReadText(const std::string& path, size_t bytes_max) {
  ASSIGN_OR_RETURN(std::string text, ReadInputFile(path, bytes_max));
  if (absl::StripAsciiWhitespace(text).empty())
    return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return text;
}

// The manifest's JSON in a comment of the code; empty if there is none.
std::string ManifestIn(absl::string_view code) {
  std::string text;
  for (absl::string_view line : absl::StrSplit(code, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, "//")) {
      if (!text.empty()) break;
      continue;
    }
    absl::string_view rest = absl::StripLeadingAsciiWhitespace(line);
    if (text.empty() && !absl::ConsumePrefix(&rest, kManifestMark)) continue;
    absl::StrAppend(&text, text.empty() ? rest : line, "\n");
    if (line == "}" || line == " }") break;
  }
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
  } else if (!absl::StrContains(source.code, kManifestMark)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has no manifest: begin it with one in a comment, or give --manifest FILE.json"));
  }
  ReadFacts(manifest_path.empty() ? ManifestIn(source.code) : source.manifest_json, &source);
  return source;
}

}  // namespace warpcall::cli
