#include "kernels/fault/fault.h"

#include <string>

#include "kernels/fault/copy.h"

namespace warpcall {

const Op& FaultOp() {
  static const Op* const op = new Op{
      .name = "fault",
      .summary = "breaks the device that runs it: for tests only",
      .input_names = {"x"},
      .attributes = {{.name = "kind",
                      .summary = "trap: the device is lost; out_of_memory: the request is refused",
                      .default_value = std::string("trap"),
                      .allowed_values = {"trap", "out_of_memory"}}},
      .infer_outputs = fault::InferCopy,
      .work = [](const Problem&) { return Work(); }};
  return *op;
}

}  // namespace warpcall
