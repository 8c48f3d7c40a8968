#include "kernels/fault/fault.h"

#include <string>

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
      .infer_outputs =
          [](Problem* problem) {
            problem->outputs.push_back(problem->inputs[0]);
            return absl::OkStatus();
          },
      .work = [](const Problem&) { return Work(); }};
  return *op;
}

}  // namespace warpcall
