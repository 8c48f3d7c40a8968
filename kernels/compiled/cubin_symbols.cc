#include "kernels/compiled/cubin_symbols.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall::compiled {
namespace {

absl::Status Malformed(absl::string_view what, uint64_t value) {
  return absl::InternalError(absl::StrCat("a cubin is malformed: ", what, " ", value));
}

// Returns the bytes at an offset, or nothing where the file has fewer.
std::optional<absl::string_view> BytesAt(absl::string_view file, uint64_t offset, uint64_t bytes) {
  if (offset > file.size() || bytes > file.size() - offset) return std::nullopt;
  return file.substr(offset, bytes);
}

// Reads a structure of the file, which has no alignment.
template <typename T>
absl::StatusOr<T> ReadAt(absl::string_view file, uint64_t offset) {
  const std::optional<absl::string_view> bytes = BytesAt(file, offset, sizeof(T));
  if (!bytes.has_value()) return Malformed("its end cuts the structure at byte", offset);
  T value;
  std::memcpy(&value, bytes->data(), sizeof(T));
  return value;
}

absl::StatusOr<Elf64_Shdr> SectionAt(absl::string_view file, const Elf64_Ehdr& header,
                                     uint64_t index) {
  if (index >= header.e_shnum) return Malformed("there is no section", index);
  // The sum may wrap: any place within the file is safe to read.
  return ReadAt<Elf64_Shdr>(file, header.e_shoff + index * sizeof(Elf64_Shdr));
}

absl::StatusOr<std::string> NameAt(absl::string_view file, const Elf64_Shdr& names,
                                   uint64_t offset) {
  const std::optional<absl::string_view> section = BytesAt(file, names.sh_offset, names.sh_size);
  if (!section.has_value()) return Malformed("names end after byte", file.size());
  if (offset >= section->size()) return Malformed("there is no name at", offset);
  const size_t end = section->find('\0', offset);
  if (end == absl::string_view::npos) return Malformed("a name without an end at", offset);
  return std::string(section->substr(offset, end - offset));
}

absl::Status AddUndefined(absl::string_view file, const Elf64_Shdr& symbols,
                          const Elf64_Shdr& names, std::vector<std::string>* undefined) {
  const std::optional<absl::string_view> table = BytesAt(file, symbols.sh_offset, symbols.sh_size);
  if (!table.has_value()) return Malformed("symbols end after byte", file.size());
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table->size(); at += sizeof(Elf64_Sym)) {
    ASSIGN_OR_RETURN(const Elf64_Sym symbol, ReadAt<Elf64_Sym>(*table, at));
    if (symbol.st_shndx != SHN_UNDEF || symbol.st_name == 0) continue;
    ASSIGN_OR_RETURN(std::string name, NameAt(file, names, symbol.st_name));
    undefined->push_back(std::move(name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> UndefinedSymbols(absl::string_view cubin) {
  ASSIGN_OR_RETURN(const Elf64_Ehdr header, ReadAt<Elf64_Ehdr>(cubin, 0));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB)
    return Malformed("it is no ELF file of 64 bits; its class is", header.e_ident[EI_CLASS]);
  if (header.e_shnum != 0 && header.e_shentsize != sizeof(Elf64_Shdr))
    return Malformed("sections have headers of bytes", header.e_shentsize);
  std::vector<std::string> undefined;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    ASSIGN_OR_RETURN(const Elf64_Shdr section, SectionAt(cubin, header, i));
    if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) continue;
    ASSIGN_OR_RETURN(const Elf64_Shdr names, SectionAt(cubin, header, section.sh_link));
    RETURN_IF_ERROR(AddUndefined(cubin, section, names, &undefined));
  }
  return undefined;
}

}  // namespace warpcall::compiled
