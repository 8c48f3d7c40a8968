// README's lines for C++ in a program: with the header that they name and no other header of ours,
// linked with a client's libraries.
//
//   readme_client ADDRESS    prints what `use` gets
#include <warpcall/client.h>

#include <cinttypes>
#include <cstdio>
#include <vector>

#include "absl/types/span.h"

namespace {

void use(absl::Span<const float> y, int64_t kernel_ns) {
  for (const float value : y) std::printf("%.9g ", value);
  std::printf("%" PRId64 "\n", kernel_ns);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const char* const address = argv[1];
  const std::vector<float> values = {1, 2, 3, 1, 1, 1};
#include <readme_lines.inc>
}
