// The files of a push: CUDA C++, and its manifest if that is a file of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/common/data_type.h"

namespace warpcall::cli {

struct PushSource {
  std::string path = {};  // of the code
  std::string code = {};
  std::string manifest_json = {};  // empty: the code begins with it
  // Values from the manifest, which only the server checks; empty if the manifest can't be read
  // here.
  std::string name = {};
  std::string op = {};
  std::vector<DataType> types = {};
};

// Reads the code and, unless `manifest_path` is empty, the manifest. INVALID_ARGUMENT for files
// that are empty or over the limit; NOT_FOUND for a missing file; FAILED_PRECONDITION if the
// code does not begin with a manifest (FindManifest) and there is none of its own.
absl::StatusOr<PushSource> ReadPushSource(const std::string& path,
                                          const std::string& manifest_path);

// The shortest manifest that a kernel can have, as it stands in a .cu file.
extern const char kShortestManifest[];

}  // namespace warpcall::cli
