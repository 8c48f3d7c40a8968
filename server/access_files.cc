#include "server/access_files.h"

#include <string>

#include "proto/common/status_macros.h"
#include "server/access/tokens.h"
#include "server/log.h"
#include "server/transport/caller.h"

namespace warpcall {
namespace {

// What is read again together; empty names where a flag is not given.
std::vector<std::vector<std::string>> WatchedFiles(const Config& config) {
  return {{config.tls_cert, config.tls_key, config.tls_client_ca},
          {config.token_file},
          {config.policy_file}};
}

}  // namespace

absl::StatusOr<AccessFiles> OpenAccessFiles(const Config& config) {
  AccessFiles files;
  for (const std::vector<std::string>& watched : WatchedFiles(config))
    files.seen.push_back(FileWatch::StatesOf(watched));
  if (!config.tls_cert.empty()) {
    ASSIGN_OR_RETURN(files.certificates,
                     Certificates::Open({config.tls_cert, config.tls_key, config.tls_client_ca}));
  }
  if (!config.token_file.empty()) {
    ASSIGN_OR_RETURN(files.callers, Callers::Open(config.token_file));
    if (files.callers->AnyWeak())
      LogAlways(LogLevel::kWarning, "tokens can be guessed",
                {{"file", config.token_file},
                 {"characters_at_least", static_cast<int64_t>(kTokenBytesGood)}});
  }
  if (!config.policy_file.empty()) {
    ASSIGN_OR_RETURN(files.policies, Policies::Open(config.policy_file, MethodNames()));
  }
  files.gate = std::make_unique<Gate>(
      Gate::Options{files.callers.get(), !config.tls_client_ca.empty(), files.policies.get()});
  return files;
}

std::vector<LabelledCount> AuthRefusals(const Gate& gate) {
  std::vector<LabelledCount> counts;
  for (int i = 0; i < kAuthRefusalCount; ++i) {
    const auto reason = static_cast<AuthRefusal>(i);
    counts.push_back({AuthRefusalName(reason), gate.refusals(reason)});
  }
  return counts;
}

void AddTo(Reloader* reloader, const Config& config, const AccessFiles& files) {
  if (files.certificates != nullptr)
    reloader->Add({"tls_cert", config.tls_cert},
                  [from = files.certificates.get()] { return from->ReadAgain(); });
  if (files.callers != nullptr)
    reloader->Add({"token_file", config.token_file},
                  [from = files.callers.get()] { return from->ReadAgain(); });
  if (files.policies != nullptr)
    reloader->Add({"policy_file", config.policy_file},
                  [from = files.policies.get()] { return from->ReadAgain(); });
}

std::vector<std::unique_ptr<FileWatch>> WatchAccessFiles(const Config& config,
                                                         const AccessFiles& files,
                                                         const Reloader& reloader) {
  std::vector<std::unique_ptr<FileWatch>> watches;
  const std::vector<std::vector<std::string>> all = WatchedFiles(config);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& file = all[i].front();
    if (file.empty()) continue;
    auto read_again = [&reloader, file] { return reloader.ReadAgain(file); };
    watches.push_back(std::make_unique<FileWatch>(all[i], files.seen[i], std::move(read_again)));
  }
  return watches;
}

}  // namespace warpcall
