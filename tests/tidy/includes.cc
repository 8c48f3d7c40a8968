#include "tests/tidy/includes.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace warpcall::tidy {
namespace {

using absl::string_view;

// The lists below are separated by blanks. A header matches an entry that it begins with; an entry
// ending in /* matches the headers of that folder itself and none below; @ is the includer's
// folder.
struct Room {
  const char* prefix;
  const char* headers;    // of this repository
  const char* libraries;  // by their names in kLibraries
};

// The first prefix that fits counts. main.cc and its neighbours wire the server together, so they
// see all of its rooms, but none of the libraries that those hide.
constexpr char kKernelHeaders[] =
    "@ kernels/* kernels/check/ kernels/common/ kernels/cpu/ kernels/cuda/ kernels/triton/ "
    "kernels/jit/";
constexpr Room kRooms[] = {
    {"kernels/catalog_", "kernels/", ""},
    {"kernels/common/", "@ kernels/*", "cuda"},
    {"kernels/fault/", "@ kernels/", "cuda"},
    {"kernels/", kKernelHeaders, "cuda onednn highway"},
    {"proto/", "@", "grpc"},
    {"server/engine/", "@ server/log.h server/runtime/* kernels/", ""},
    {"server/runtime/cuda/",
     "@ server/log.h server/engine/gpu_reading.h server/engine/phases.h server/runtime/* kernels/",
     "cuda"},
    {"server/runtime/", "@ server/log.h server/runtime/* kernels/", ""},
    {"server/inspect/", "@ server/log.h server/spawn.h server/engine/ server/runtime/* kernels/",
     "json"},
    {"server/self_test/",
     "@ server/engine/ server/inspect/ server/runtime/* kernels/", ""},
    {"server/worker/", "@ server/log.h server/spawn.h server/engine/ server/runtime/* kernels/",
     ""},
    {"server/metrics/", "@ server/log.h server/engine/ kernels/", "prometheus"},
    {"server/transport/",
     "@ server/log.h server/engine/ server/inspect/ server/runtime/* kernels/ proto/", "grpc"},
    {"server/", "server/ kernels/", "cli11"},
    {"client/cpp/rpc/", "@ client/cpp/* proto/ kernels/common/", "grpc"},
    {"client/cpp/codec/", "@ client/cpp/* client/cpp/rpc/ proto/ kernels/common/", "grpc"},
    {"client/cpp/", "client/cpp/ proto/ kernels/common/", "grpc"},
    {"client/cli/common/", "@ client/cpp/* kernels/common/", "cli11 json"},
    {"client/cli/bench/", "@ client/cli/common/ client/cpp/* kernels/common/", "cli11 json"},
    {"client/cli/load/", "@ client/cli/common/ client/cpp/* kernels/common/", "cli11 json"},
    {"client/cli/profile/", "@ client/cli/common/ client/cpp/* kernels/common/", "cli11 json"},
    {"client/cli/", "client/cli/ client/cpp/* kernels/common/", "cli11 json"},
    {"client/examples/", "@ client/cpp/* kernels/common/", "cli11 json"},
    {"tests/", "kernels/ server/ client/ proto/ tests/",
     "cuda onednn highway grpc prometheus httplib cli11 json test"},
};

struct Library {
  const char* name;
  const char* headers;
};

constexpr Library kLibraries[] = {
    {"grpc", "grpc/ grpcpp/ google/protobuf/ warpcall/v1/"},
    {"prometheus", "prometheus/ civetweb.h CivetServer.h"},
    {"httplib", "httplib.h"},
    {"cuda",
     "cuda cublas cudnn nvrtc nvml nvJitLink nvtx3/ cupti cooperative_groups mma.h cub/ cute/ "
     "cutlass/"},
    {"onednn", "dnnl oneapi/dnnl/"},
    {"highway", "hwy/"},
    {"cli11", "CLI/"},
    {"json", "nlohmann/"},
    {"test", "gtest/ gmock/ benchmark/ sanitizer/"},
};

// Folders of the C library and the kernel, which every room may use, like headers without a folder.
constexpr char kSystemFolders[] = "absl/ sys/ arpa/ net/ netinet/ linux/";
constexpr char kOwnFolders[] = "kernels/ server/ client/ proto/ tests/";

string_view FolderOf(string_view path) {
  const size_t slash = path.rfind('/');
  return slash == string_view::npos ? "" : path.substr(0, slash + 1);
}

bool Matches(string_view header, string_view list, string_view folder) {
  for (string_view entry : absl::StrSplit(list, ' ', absl::SkipEmpty())) {
    if (entry == "@") entry = folder;
    if (absl::ConsumeSuffix(&entry, "*")) {
      if (FolderOf(header) == entry) return true;
    } else if (absl::StartsWith(header, entry)) {
      return true;
    }
  }
  return false;
}

const Room* FindRoom(string_view path) {
  for (const Room& room : kRooms) {
    if (absl::StartsWith(path, room.prefix)) return &room;
  }
  return nullptr;
}

// Why `room` may not include the header; "" when it may.
std::string Refusal(const Room& room, const Include& include, string_view folder) {
  const string_view header = include.path;
  const string_view prefix = room.prefix;
  if (Matches(header, kOwnFolders, "")) {
    if (Matches(header, room.headers, folder)) return "";
    return absl::StrCat(prefix, " may include only: ", room.headers, " (@: its own folder)");
  }
  for (const Library& library : kLibraries) {
    if (!Matches(header, library.headers, "")) continue;
    for (string_view allowed : absl::StrSplit(room.libraries, ' ')) {
      if (allowed == library.name) return "";
    }
    return absl::StrCat(prefix, " must not see ", library.name,
                        "; its libraries: ", *room.libraries == '\0' ? "none" : room.libraries);
  }
  const bool system = !include.quoted && !absl::StrContains(header, "/");
  if (system || Matches(header, kSystemFolders, "")) return "";
  return "a header that tests/tidy/includes.cc does not know";
}

}  // namespace

std::vector<Include> ScanIncludes(const Source& source) {
  std::vector<Include> includes;
  const std::vector<string_view> text = source.TextLines();
  const std::vector<string_view> code = source.CodeLines();
  for (size_t i = 0; i < code.size(); ++i) {
    string_view directive = absl::StripLeadingAsciiWhitespace(code[i]);
    if (!absl::ConsumePrefix(&directive, "#")) continue;
    if (!absl::StartsWith(absl::StripLeadingAsciiWhitespace(directive), "include")) continue;
    const size_t open = text[i].find_first_of("\"<");
    if (open == string_view::npos) continue;
    const size_t close = text[i].find_first_of("\">", open + 1);
    if (close == string_view::npos) continue;
    includes.push_back({std::string(text[i].substr(open + 1, close - open - 1)),
                        text[i][open] == '"', static_cast<int>(i) + 1});
  }
  return includes;
}

std::vector<Finding> CheckIncludes(const Source& source) {
  std::vector<Finding> findings;
  const Room* room = FindRoom(source.path);
  if (room == nullptr) {
    return {{source.path, 0, "stands in no room that tests/tidy/includes.cc knows"}};
  }
  for (const Include& include : ScanIncludes(source)) {
    std::string refusal = Refusal(*room, include, FolderOf(source.path));
    if (absl::EndsWith(include.path, ".cc")) refusal = "a .cc is compiled, never included";
    if (refusal.empty()) continue;
    findings.push_back(
        {source.path, include.line, absl::StrCat("includes ", include.path, ": ", refusal)});
  }
  return findings;
}

}  // namespace warpcall::tidy
