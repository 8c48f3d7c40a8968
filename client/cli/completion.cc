// warpcall completion: a script that a shell reads, and what the script asks.
#include "client/cli/completion.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/command.h"
#include "client/cli/common/complete.h"
#include "client/cli/common/output.h"
#include "client/cli/common/screen.h"
#include "client/cpp/client.h"

namespace warpcall::cli {
namespace {

// Who presses a key waits for this.
constexpr absl::Duration kAskTimeout = absl::Milliseconds(500);

constexpr char kBash[] = R"(# bash: source <(warpcall completion bash)
_warpcall() {
  local words=() rest=$COMP_LINE line word text last= n=-1 i
  # bash takes ':' and '=' for ends of words; what stands without a space between is one word.
  for ((i = 0; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    text=${rest#"${rest%%[![:space:]]*}"}
    if [[ $text == "$rest" && ($word =~ ^[:=]+$ || $last =~ ^[:=]+$) ]]; then
      words[n]+=$word
    else
      words[++n]=$word
    fi
    rest=${text#"$word"} last=$word
  done
  # Of the last word only what stands behind its last end is replaced.
  local ends=${COMP_WORDBREAKS//[^:=]/} before=
  if [[ $ends ]]; then before=${words[n]%"${words[n]##*[$ends]}"}; fi
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("${line#"$before"}")
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _warpcall warpcall
)";

constexpr char kZsh[] = R"(#compdef warpcall
# zsh: source <(warpcall completion zsh), or a file named _warpcall in a folder of $fpath
_warpcall() {
  local -a found
  found=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  found=(${found:#})
  if (( ${#found} )); then
    compadd -- "${found[@]}"
  else
    _files
  fi
}
if [[ $funcstack[1] == _warpcall ]]; then
  _warpcall "$@"
else
  compdef _warpcall warpcall
fi
)";

void AddImplementations(const client::KernelInfo& kernel, std::set<std::string>* words) {
  for (const client::ImplementationInfo& implementation : kernel.implementations) {
    words->insert(implementation.name);
    words->insert(implementation.family);
    for (const std::string& variant : implementation.variants)
      words->insert(VariantName(implementation.name, variant));
  }
}

// Its name, or what it may be where that is known and the name is there.
void AddAttribute(const client::AttributeInfo& attribute, const std::string& begun,
                  std::set<std::string>* words) {
  const std::string name = attribute.name + "=";
  if (!absl::StartsWith(begun, name)) words->insert(name);
  for (const std::string& value : attribute.allowed_values)
    if (absl::StartsWith(begun, name)) words->insert(name + value);
}

void AddKernels(const Completion& completion, client::Client* client,
                std::set<std::string>* words) {
  const auto kernels = client->ListKernels();
  if (!kernels.ok()) return;
  for (const client::KernelInfo& kernel : *kernels) {
    if (completion.names == Names::kKernels) words->insert(kernel.name);
    if (!completion.kernel.empty() && completion.kernel != kernel.name) continue;
    if (completion.names == Names::kImplementations) AddImplementations(kernel, words);
    if (completion.names == Names::kAttributes)
      for (const client::AttributeInfo& attribute : kernel.attributes)
        AddAttribute(attribute, completion.begun, words);
  }
}

void AddFromServer(const Completion& completion, const Globals& globals,
                   std::set<std::string>* words) {
  client::Client client(
      globals.server,
      {.retry = {.attempts_max = 1}, .timeout = kAskTimeout, .credentials = globals.credentials});
  if (completion.names != Names::kDevices) return AddKernels(completion, &client, words);
  const auto devices = client.ListDevices();
  if (!devices.ok()) return;
  for (const client::DeviceInfo& device : *devices) words->insert(device.name);
}

// Words are completed as they were typed, before the shell puts the home folder in place of a ~.
std::vector<std::string> AtHome(std::vector<std::string> options) {
  const char* const home = std::getenv("HOME");
  for (std::string& option : options)
    if (const size_t at = option.find("=~/"); home != nullptr && at != std::string::npos)
      option.replace(at + 1, 1, home);
  return options;
}

}  // namespace

int PrintCompletions(CommandLine* command_line, absl::Span<const std::string> words,
                     const Globals& globals, const CredentialFiles& files) {
  const Completion completion = Complete(command_line->Model(), words);
  std::set<std::string> possible(completion.words.begin(), completion.words.end());
  const bool server_knows = completion.names != Names::kNone && completion.names != Names::kFiles;
  if (server_knows && command_line->ParseOptions(AtHome(completion.options))) {
    Globals asking = globals;
    if (auto credentials = ReadCredentials(files); credentials.ok()) {
      asking.credentials = *std::move(credentials);
      AddFromServer(completion, asking, &possible);
    }
  }
  for (const std::string& word : possible)
    if (absl::StartsWith(word, completion.begun))
      PrintText(absl::StrCat(completion.before, Printable(word), "\n"));
  return kExitOk;
}

Command AddCompletionCommand(const Arguments& root) {
  const Arguments arguments =
      root.AddSubcommand("completion", "Print a script that completes command lines in a shell");
  const auto shell = std::make_shared<std::string>();
  arguments.Add("shell", shell.get(), "source <(warpcall completion bash)")
      .Required()
      .OneOf({"bash", "zsh"});
  return {arguments,
          [shell] {
            PrintText(*shell == "zsh" ? kZsh : kBash);
            return kExitOk;
          },
          /*asks_server=*/false};
}

}  // namespace warpcall::cli
