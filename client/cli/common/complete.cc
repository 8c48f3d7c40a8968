#include "client/cli/common/complete.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace warpcall::cli {
namespace {

// What the values of an option are, by its name, which means the same in all commands.
Names NamesOf(const OptionModel& option) {
  if (!option.values.empty()) return Names::kNone;
  if (option.name == "kernel") return Names::kKernels;
  if (option.name == "--implementation") return Names::kImplementations;
  if (option.name == "--device") return Names::kDevices;
  if (option.name == "--attribute") return Names::kAttributes;
  const bool file = option.name == "inputs" || option.name == "--input" ||
                    option.name == "--output" || option.name == "--csv" ||
                    option.name == "--plot" || option.name == "--trace";
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
  const OptionModel* pending_ = nullptr;  // whose value comes next
  int values_ = 0;                        // without names, so far
  std::string kernel_;
  std::vector<std::string> options_;
};

}  // namespace

Completion Complete(const ProgramModel& program, absl::Span<const std::string> words) {
  if (words.empty()) return {};
  Reader reader(program);
  for (const std::string& word : words.first(words.size() - 1)) reader.Take(word);
  return reader.Finish(words.back());
}

}  // namespace warpcall::cli
