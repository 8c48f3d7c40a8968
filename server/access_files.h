// The files that say who may call, opened as the flags name them.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/callers.h"
#include "server/access/file_watch.h"
#include "server/access/gate.h"
#include "server/access/policies.h"
#include "server/config.h"
#include "server/reload.h"
#include "server/transport/certificates.h"

namespace warpcall {

struct AccessFiles {
  std::unique_ptr<Certificates> certificates;  // null: no TLS
  std::unique_ptr<Callers> callers;            // null: no tokens
  std::unique_ptr<Policies> policies;          // null: everybody may do everything
  std::unique_ptr<Gate> gate;                  // by the others
  std::vector<std::string> seen;               // FileWatch's, before they were read
};

// Errors name flag and file.
absl::StatusOr<AccessFiles> OpenAccessFiles(const Config& config);

// How often the gate kept calls out, by reason.
std::vector<LabelledCount> AuthRefusals(const Gate& gate);

// `files` outlives `reloader`.
void AddTo(Reloader* reloader, const Config& config, const AccessFiles& files);

// Has `reloader` read again what has changed since `files` were read, until what is returned is
// gone.
std::vector<std::unique_ptr<FileWatch>> WatchAccessFiles(const Config& config,
                                                         const AccessFiles& files,
                                                         const Reloader& reloader);

}  // namespace warpcall
