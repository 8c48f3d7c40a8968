#include "kernels/compiled/foreign.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/compiled/cubin_symbols.h"
#include "kernels/compiled/program.h"
#include "proto/common/manifest_comment.h"
#include "proto/common/status_macros.h"
#include "proto/common/utf8.h"

namespace warpcall::compiled {
namespace {

constexpr char kIncludePath[] = "--include-path=";
constexpr char kNoHeaders[] =
    "this server has no headers of CUDA (--cuda_include, or PyPI's nvidia-cuda-runtime)";

absl::Status Refused(absl::string_view why) { return AsCompileError(absl::InternalError(why)); }

// How a source sees its element type.
struct Element {
  const char* type;
  const char* macro;
  const char* header;  // "": none
};

Element ElementOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return {"float", "WARPCALL_T_FLOAT32", ""};
    case DataType::kFloat16:
      return {"__half", "WARPCALL_T_FLOAT16", "cuda_fp16.h"};
    case DataType::kBFloat16:
      return {"__nv_bfloat16", "WARPCALL_T_BFLOAT16", "cuda_bf16.h"};
  }
  AbortOnDataType(type);
}

std::string FileOf(absl::string_view name) {
  std::string file(name);
  std::replace_if(
      file.begin(), file.end(),
      [](char c) { return !absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-'; }, '_');
  return absl::StrCat(file.empty() ? "kernel" : file, ".cu");
}

// As math.h has them, which nvcc includes and NVRTC does not.
constexpr char kConstants[] =
    "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fffffff)\n";

std::string Prelude(const Element& element, absl::string_view file) {
  return absl::StrCat(*element.header == 0 ? "" : absl::StrCat("#include <", element.header, ">\n"),
                      kConstants, "#define ", element.macro, " 1\nusing T = ", element.type,
                      ";\n#line 1 \"", file, "\"\n");
}

// The toolkit has the headers of libcu++ in a folder of their own.
std::vector<std::string> IncludeOptions(const std::string& folder) {
  std::vector<std::string> options;
  if (folder.empty()) return options;
  std::error_code ignored;
  for (const std::string& each : {folder, absl::StrCat(folder, "/cccl")})
    if (std::filesystem::is_directory(each, ignored))
      options.push_back(absl::StrCat(kIncludePath, each));
  return options;
}

struct Forbidden {
  const char* symbol;  // or how it begins
  bool begins;
  const char* why;
};
constexpr Forbidden kForbidden[] = {
    {"vprintf", false, "printf is not available: nobody reads it. Remove it"},
    {"malloc", false, "malloc and new are not available: ask for scratch in the manifest instead"},
    {"free", false, "free and delete are not available: ask for scratch in the manifest instead"},
    {"__assertfail", false, "assert is not available: remove it, or define NDEBUG"},
    {"cuda", true,
     "launches of other kernels, and the rest of CUDA's device runtime, are not available: list "
     "several kernels in the manifest instead"},
};

absl::Status CheckSymbols(absl::string_view cubin) {
  ASSIGN_OR_RETURN(const std::vector<std::string> symbols, UndefinedSymbols(cubin));
  for (const std::string& symbol : symbols)
    for (const Forbidden& forbidden : kForbidden)
      if (forbidden.begins ? absl::StartsWith(symbol, forbidden.symbol)
                           : symbol == forbidden.symbol)
        return Refused(absl::StrCat(forbidden.why, " (the code calls ", symbol, ")"));
  return absl::OkStatus();
}

// Drops the system's reason from errors that name a file, `cannot open source file "X": REASON`,
// since reasons tell a file that may not be read from one that does not exist.
std::string WithoutReasons(absl::string_view log) {
  std::vector<absl::string_view> lines = absl::StrSplit(log, '\n');
  for (absl::string_view& line : lines) {
    const size_t quote = line.rfind('"');
    if (absl::StrContains(line, " source file \"") && absl::StartsWith(line.substr(quote + 1), ":"))
      line = line.substr(0, quote + 1);
  }
  return absl::StrJoin(lines, "\n");
}

// Adds what the author can't know from the compiler's words.
std::string Explained(absl::string_view log, const CudaSource& source) {
  std::string text = WithoutReasons(log);
  const size_t unknown_entry = text.find("__nv_name_map(");
  if (unknown_entry != std::string::npos) {
    const std::string hint = absl::StrCat("error: each entry must name one kernel of the source: ",
                                          absl::StrJoin(source.entries, ", "));
    // An entry whose own definition is in error has no name, either.
    if (text.find(": error: ") < unknown_entry)
      absl::StrAppend(&text, "\n", hint);
    else
      text = absl::StrCat(hint, "\n", text);
  }
  const bool has_headers = absl::c_any_of(source.options, [](const std::string& option) {
    return absl::StartsWith(option, kIncludePath);
  });
  if (!has_headers && absl::StrContains(text, " source file \""))
    absl::StrAppend(&text, "\n", kNoHeaders);
  return text;
}

// C0 but newline and tab, DEL, and C1.
bool IsControl(absl::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 2 && first == 0xC2)
    return static_cast<unsigned char>(character[1]) < 0xA0;
  return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
}

}  // namespace

absl::StatusOr<CudaSource> ToCudaSource(const ForeignSource& foreign,
                                        const std::string& include_folder) {
  if (foreign.source.size() > kForeignSourceBytesMax)
    return absl::InvalidArgumentError(absl::StrCat(
        "the source has ", foreign.source.size(), " bytes; the limit is ", kForeignSourceBytesMax));
  if (const size_t zero = foreign.source.find('\0'); zero != std::string::npos)
    return Refused(absl::StrCat(
        "the source has a zero byte in line ",
        1 + std::count(foreign.source.begin(),
                       foreign.source.begin() + static_cast<std::ptrdiff_t>(zero), '\n')));
  const Element element = ElementOf(foreign.data_type);
  if (*element.header != 0 && include_folder.empty())
    return absl::UnimplementedError(absl::StrCat(DataTypeName(foreign.data_type), " needs ",
                                                 element.header, "; ", kNoHeaders));
  CudaSource source;
  source.file = FileOf(foreign.name);
  // NVRTC takes no byte order mark.
  source.text = absl::StrCat(Prelude(element, source.file),
                             absl::StripPrefix(foreign.source, kByteOrderMark));
  source.options = IncludeOptions(include_folder);
  source.options.push_back(absl::StrCat("--gpu-architecture=", foreign.arch));
  source.options.insert(source.options.end(), foreign.options.begin(), foreign.options.end());
  source.entries = foreign.entries;
  source.with_ptx = foreign.with_ptx;
  return source;
}

absl::Status WithMissingCompiler(const absl::Status& refusal, const absl::Status& compiler) {
  if (!absl::IsUnimplemented(refusal) || compiler.ok()) return refusal;
  return absl::UnimplementedError(
      absl::StrCat(refusal.message(), "; it has no compiler either: ", compiler.message()));
}

absl::StatusOr<CudaCode> CompileAndCheck(const CompileFunction& compile, const CudaSource& source) {
  absl::StatusOr<CudaCode> code = compile(source);
  if (IsCompileError(code.status()))
    return Refused(CleanText(Explained(code.status().message(), source), Nvrtc::kLogBytesMax));
  RETURN_IF_ERROR(code.status());
  RETURN_IF_ERROR(CheckSymbols(code->cubin));
  code->log = CleanText(WithoutReasons(code->log), Nvrtc::kLogBytesMax);
  return code;
}

std::string CleanText(absl::string_view text, size_t bytes_max) {
  std::string clean;
  while (!text.empty()) {
    const bool is_ascii = absl::ascii_isascii(static_cast<unsigned char>(text[0]));
    const size_t sequence = is_ascii ? 1 : Utf8SequenceBytes(text);
    const absl::string_view character = sequence == 0 ? "\uFFFD" : text.substr(0, sequence);
    if (clean.size() + character.size() > bytes_max) break;
    if (!IsControl(character)) absl::StrAppend(&clean, character);
    text.remove_prefix(std::max(sequence, size_t{1}));
  }
  return clean;
}

}  // namespace warpcall::compiled
