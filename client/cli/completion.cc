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
#include "client/cli/common/output.h"
#include "client/cli/common/screen.h"
#include "proto/common/pinned_name.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

// Short, since a person at the keyboard waits for the answer.
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

constexpr char kFish[] = R"(# fish: warpcall completion fish | source
function __warpcall_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l found (command $words[1] __complete $words[2..-1] 2>/dev/null)
  if test (count $found) -gt 0
    printf '%s\n' $found
  else
    # A file may stand behind an option, or a name: --output=FILE, y=FILE.
    set -l name (string match -r '^[^=/]*=' -- $words[-1]; or echo)
    printf '%s\n' $name(__fish_complete_path (string replace -r '^[^=/]*=' '' -- $words[-1]))
  end
end
complete -c warpcall -f -a '(__warpcall_complete)'
)";

// Returns the kind of an option's values. An option's name means the same in all commands.
Names NamesOf(const OptionModel& option) {
  if (!option.values.empty()) return Names::kNone;
  if (option.name == "kernel") return Names::kKernels;
  if (option.name == "--implementation" || option.name == "--compare-with")
    return Names::kImplementations;
  if (option.name == "--device") return Names::kDevices;
  if (option.name == "--attribute") return Names::kAttributes;
  const bool file =
      option.name == "inputs" || option.name == "--input" || option.name == "--output" ||
      option.name == "--csv" || option.name == "--plot" || option.name == "--trace" ||
      option.name == "--manifest" || option.name == "--html" || option.name == "--files";
  return file || !option.named ? Names::kFiles : Names::kNone;
}

// Reads words one after the other.
class Reader {
 public:
  explicit Reader(const ProgramModel& program) : program_(program) {}

  void Take(const std::string& word) {
    if (pending_ != nullptr) {
      if (IsTheProgramsOwn(*pending_)) options_.push_back(absl::StrCat(pending_->name, "=", word));
      pending_ = nullptr;
    } else if (absl::StartsWith(word, "-")) {
      const size_t equals = word.find('=');
      const OptionModel* const option = Find(word.substr(0, equals));
      if (option == nullptr) return;
      if (option->takes_value && equals == std::string::npos) {
        pending_ = option;
      } else if (IsTheProgramsOwn(*option)) {
        options_.push_back(word);
      }
    } else if (command_ == nullptr) {
      const auto found =
          std::find_if(program_.commands.begin(), program_.commands.end(),
                       [&](const CommandModel& known) { return known.name == word; });
      if (found != program_.commands.end()) command_ = &*found;
    } else {
      const OptionModel* const value = NextValue();
      if (value != nullptr && value->name == "kernel") kernel_ = word;
      ++values_;
    }
  }

  Completion Finish(const std::string& begun) const {
    Completion completion{.begun = begun, .kernel = kernel_, .options = options_};
    const size_t equals = begun.find('=');
    const bool has_value = absl::StartsWith(begun, "-") && equals != std::string::npos;
    if (pending_ == nullptr && has_value) {
      const OptionModel* const option = Find(begun.substr(0, equals));
      completion.before = begun.substr(0, equals + 1);
      completion.begun = begun.substr(equals + 1);
      if (option != nullptr && option->takes_value) AddValues(*option, &completion);
    } else if (pending_ != nullptr) {
      AddValues(*pending_, &completion);
    } else if (absl::StartsWith(begun, "-")) {
      for (const auto* options : {&program_.options, Options()})
        for (const OptionModel& option : *options)
          if (option.named) completion.words.push_back(option.name);
    } else if (command_ == nullptr) {
      for (const CommandModel& command : program_.commands)
        completion.words.push_back(command.name);
    } else if (const OptionModel* const value = NextValue(); value != nullptr) {
      AddValues(*value, &completion);
    }
    return completion;
  }

 private:
  const std::vector<OptionModel>* Options() const {
    static const std::vector<OptionModel> kNone;
    return command_ == nullptr ? &kNone : &command_->options;
  }

  const OptionModel* Find(const std::string& name) const {
    for (const auto* options : {&program_.options, Options()})
      for (const OptionModel& option : *options)
        if (option.name == name) return &option;
    return nullptr;
  }

  bool IsTheProgramsOwn(const OptionModel& option) const {
    return std::any_of(program_.options.begin(), program_.options.end(),
                       [&](const OptionModel& own) { return &own == &option; });
  }

  // The value without a name whose turn it is; the last takes all that follow.
  const OptionModel* NextValue() const {
    const OptionModel* last = nullptr;
    int left = values_;
    for (const OptionModel& option : *Options()) {
      if (option.named) continue;
      last = &option;
      if (left-- == 0) break;
    }
    return last;
  }

  void AddValues(const OptionModel& option, Completion* completion) const {
    completion->words = option.values;
    completion->names = NamesOf(option);
    if (option.name != "command") return;
    completion->names = Names::kNone;
    for (const CommandModel& command : program_.commands) completion->words.push_back(command.name);
  }

  const ProgramModel& program_;
  const CommandModel* command_ = nullptr;
  const OptionModel* pending_ = nullptr;  // option whose value comes next
  int values_ = 0;                        // unnamed values so far
  std::string kernel_;
  std::vector<std::string> options_;
};

void AddImplementations(const client::KernelInfo& kernel, std::set<std::string>* words) {
  for (const client::ImplementationInfo& implementation : kernel.implementations) {
    words->insert(implementation.name);
    words->insert(implementation.family);
    for (const std::string& variant : implementation.variants)
      words->insert(PinnedName(implementation.name, variant));
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

Completion Complete(const ProgramModel& program, absl::Span<const std::string> words) {
  if (words.empty()) return {};
  Reader reader(program);
  for (const std::string& word : words.first(words.size() - 1)) reader.Take(word);
  return reader.Finish(words.back());
}

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
      root.AddSubcommand("completion", "Print a script for tab completion in a shell");
  const auto shell = std::make_shared<std::string>();
  arguments
      .Add("shell", shell.get(),
           "Shell that runs the script, as source <(warpcall completion bash)")
      .Required()
      .OneOf({"bash", "fish", "zsh"});
  return {arguments,
          [shell] {
            PrintText(*shell == "zsh" ? kZsh : *shell == "fish" ? kFish : kBash);
            return kExitOk;
          },
          /*asks_server=*/false};
}

}  // namespace warpcall::cli
