// A manifest's args beside the parameters of the kernels that were compiled.
#pragma once

#include "absl/status/status.h"
#include "kernels/compiled/cuda_code.h"
#include "kernels/manifest/kernel_manifest.h"

namespace warpcall::judge {

// INVALID_ARGUMENT names the first argument that does not fit its parameter, or the kernel that has
// more or fewer. OK if the code's PTX does not say what its kernels take: a GPU that loads the code
// compares the sizes again. REQUIRES: `code` has a kernel for each entry.
absl::Status CheckArguments(const manifest::KernelManifest& manifest,
                            const compiled::CudaCode& code);

}  // namespace warpcall::judge
