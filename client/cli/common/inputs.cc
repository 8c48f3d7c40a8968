#include "client/cli/common/inputs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/tensor_text.h"
#include "client/cpp/npy.h"
#include "kernels/common/status_macros.h"

namespace warpcall::cli {

absl::StatusOr<std::vector<client::Tensor>> ReadInputs(absl::Span<const std::string> paths,
                                                       const std::string& type) {
  std::vector<client::Tensor> tensors;
  for (const std::string& path : paths) {
    const Progress progress(absl::StrCat("reading ", path));
    ASSIGN_OR_RETURN(client::Tensor tensor,
                     client::ReadNpy(path, {.uint16_is_bfloat16 = type == "bf16"}));
    if (!type.empty() && type != DataTypeOption(tensor.data_type()))
      return absl::InvalidArgumentError(absl::StrCat(path, ": --type ", type, ", but the file has ",
                                                     DataTypeName(tensor.data_type())));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace warpcall::cli
