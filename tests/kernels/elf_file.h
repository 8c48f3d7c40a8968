// ELF files of a test's own, as far as symbols go.
#pragma once

#include <elf.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace warpcall::testing {

struct ElfSymbol {
  std::string name;
  bool defined = false;
};

// A cubin with these symbols: the header, names, symbols, and the headers of three sections.
inline std::string ElfFile(const std::vector<ElfSymbol>& symbols) {
  const auto bytes_of = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  std::string names(1, '\0');
  std::string table = bytes_of(Elf64_Sym{});
  for (const ElfSymbol& symbol : symbols) {
    Elf64_Sym entry = {};
    entry.st_name = static_cast<uint32_t>(names.size());
    entry.st_shndx = symbol.defined ? 1 : SHN_UNDEF;
    table += bytes_of(entry);
    names += symbol.name + '\0';
  }
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shoff = sizeof(header) + names.size() + table.size();
  Elf64_Shdr names_section = {};
  names_section.sh_type = SHT_STRTAB;
  names_section.sh_offset = sizeof(header);
  names_section.sh_size = names.size();
  Elf64_Shdr symbols_section = {};
  symbols_section.sh_type = SHT_SYMTAB;
  symbols_section.sh_offset = sizeof(header) + names.size();
  symbols_section.sh_size = table.size();
  symbols_section.sh_link = 1;
  return bytes_of(header) + names + table + bytes_of(Elf64_Shdr{}) + bytes_of(names_section) +
         bytes_of(symbols_section);
}

}  // namespace warpcall::testing
