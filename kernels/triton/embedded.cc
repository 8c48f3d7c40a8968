#include "kernels/triton/embedded.h"

#include <cstddef>

// The assembler reads the files: megabytes as a C++ array would take minutes to compile.
asm(R"(
  .pushsection .rodata.warpcall_triton, "a", @progbits
  .hidden warpcall_triton_cubins, warpcall_triton_cubins_end
  .hidden warpcall_triton_manifest, warpcall_triton_manifest_end
  .globl warpcall_triton_cubins, warpcall_triton_cubins_end
  .globl warpcall_triton_manifest, warpcall_triton_manifest_end
  .balign 16
warpcall_triton_cubins:
  .incbin ")" WARPCALL_TRITON_CUBINS R"("
warpcall_triton_cubins_end:
warpcall_triton_manifest:
  .incbin ")" WARPCALL_TRITON_MANIFEST R"("
warpcall_triton_manifest_end:
  .popsection
)");

extern "C" {
extern const char warpcall_triton_cubins[];
extern const char warpcall_triton_cubins_end[];
extern const char warpcall_triton_manifest[];
extern const char warpcall_triton_manifest_end[];
}

namespace warpcall::triton {

absl::string_view EmbeddedManifest() {
  return {warpcall_triton_manifest,
          static_cast<size_t>(warpcall_triton_manifest_end - warpcall_triton_manifest)};
}

absl::string_view EmbeddedCubins() {
  return {warpcall_triton_cubins,
          static_cast<size_t>(warpcall_triton_cubins_end - warpcall_triton_cubins)};
}

}  // namespace warpcall::triton
