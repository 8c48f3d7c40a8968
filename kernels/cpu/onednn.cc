#include "kernels/cpu/onednn.h"

#include <cstdlib>
#include <optional>

#include "kernels/cpu/onednn_isa.h"

namespace warpcall::onednn {
namespace {

// Primitives that oneDNN remembers, about 0.1 MB each: with its default of 1024, clients that send
// one shape after another made the process grow by 50 MB.
constexpr int kPrimitivesMax = 64;

// oneDNN reads the second name where the first is not set.
absl::string_view AskedIsa() {
  for (const char* const name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"})
    if (const char* const asked = std::getenv(name)) return asked;
  return "";
}

}  // namespace

dnnl::engine CpuEngine() {
  static const dnnl::engine engine = [] {
    // Before anything else: oneDNN takes no limit once it has looked at the processor.
    const std::optional<dnnl::cpu_isa> limit = IsaLimit(ReadAmxFacts(), AskedIsa());
    if (limit.has_value())
      dnnl::error::wrap_c_api(dnnl_set_max_cpu_isa(static_cast<dnnl_cpu_isa_t>(*limit)),
                              "limiting the instruction set");
    dnnl::set_primitive_cache_capacity(kPrimitivesMax);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

}  // namespace warpcall::onednn
