// What comes from a process that compiled a user's source, and the machine code that it looked at.
// The first byte chooses: the message of a compiler, or of the side that asks one; a cubin, as it
// is or a right one with some bytes changed and its end cut off; a log; PTX.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/compiled/cubin_symbols.h"
#include "kernels/compiled/cuda_code.h"
#include "kernels/compiled/foreign.h"
#include "kernels/compiled/ptx_parameters.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "tests/kernels/elf_file.h"

namespace warpcall::testing {
namespace {

enum Choice : uint8_t { kCode, kSource, kCubin, kMadeCubin, kLog, kPtx, kChoices };

// What is read of a message says the same message.
template <typename T>
std::string ReadBack(const absl::StatusOr<T>& read, absl::string_view bytes) {
  if (!read.ok()) return absl::IsInternal(read.status()) ? "" : read.status().ToString();
  return ToBytes(*read) == bytes ? "" : "it reads another message";
}

std::string MadeUpCubin(FuzzInput* decisions) {
  std::vector<ElfSymbol> symbols;
  for (int count = decisions->Byte() % 8; count > 0; --count) {
    const bool defined = (decisions->Byte() & 1) != 0;
    symbols.push_back({std::string(decisions->Take(decisions->Byte() % 16)), defined});
  }
  std::string file = ElfFile(symbols);
  for (int edits = decisions->Byte() % 8; edits > 0; --edits) {
    const size_t at = decisions->Number(2) % file.size();
    const absl::string_view change = decisions->Take(1 + decisions->Byte() % 8);
    file.replace(at, std::min(change.size(), file.size() - at), change.data(), change.size());
  }
  return file.substr(0, file.size() - decisions->Number(2) % (file.size() + 1));
}

std::string FuzzSymbols(absl::string_view cubin) {
  const auto symbols = compiled::UndefinedSymbols(cubin);
  if (!symbols.ok()) return absl::IsInternal(symbols.status()) ? "" : symbols.status().ToString();
  for (const std::string& symbol : *symbols)
    if (cubin.find(symbol) == absl::string_view::npos || symbol.find('\0') != std::string::npos)
      return absl::StrCat("a name that the file does not have: ", symbol);
  return "";
}

// Each parameter has a comma of its own, and a size that a kernel can have.
std::string FuzzPtx(absl::string_view ptx) {
  const auto parameters = compiled::PtxParametersOf(ptx, "f");
  if (!parameters.ok())
    return absl::IsInternal(parameters.status()) ? "" : parameters.status().ToString();
  if (parameters->size() > static_cast<size_t>(std::count(ptx.begin(), ptx.end(), ',')) + 1)
    return absl::StrCat(parameters->size(), " parameters");
  for (const compiled::PtxParameter& parameter : *parameters)
    if (parameter.bytes < 1 || parameter.bytes > 16 << 15)
      return absl::StrCat("a parameter of ", parameter.bytes, " bytes");
  return "";
}

std::string FuzzLog(absl::string_view log, size_t bytes_max) {
  const std::string clean = compiled::CleanText(log, bytes_max);
  if (clean.size() > bytes_max) return absl::StrCat(clean.size(), " bytes of a log");
  for (const char c : clean)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F)
      return "a control character";
  return compiled::CleanText(clean, bytes_max) == clean ? "" : "a clean text is not clean";
}

}  // namespace

std::string FuzzCompiler(absl::string_view input) {
  FuzzInput decisions(input);
  const uint8_t choice = decisions.Byte() % kChoices;
  if (choice == kMadeCubin) return FuzzSymbols(MadeUpCubin(&decisions));
  if (choice == kLog) {
    const size_t bytes_max = decisions.Byte();
    return FuzzLog(decisions.Rest(), bytes_max);
  }
  const absl::string_view bytes = decisions.Rest();
  if (choice == kCubin) return FuzzSymbols(bytes);
  if (choice == kPtx) return FuzzPtx(bytes);
  return choice == kCode ? ReadBack(compiled::ParseCudaCode(bytes), bytes)
                         : ReadBack(compiled::ParseCudaSource(bytes), bytes);
}

}  // namespace warpcall::testing
