// A client at fault that uses gRPC, in a process of its own (fault_client.cc).
#pragma once

#include <string>
#include <vector>

#include "tests/e2e/child_process.h"

namespace warpcall::testing {

class FaultProcess {
 public:
  // Starts fault_client with `words` and a tally file, and returns when it is connected. Fails the
  // test when it does not come up. `totals` must outlive this.
  FaultProcess(const std::vector<std::string>& words, std::vector<int>* totals);
  // Makes the process finish its current work and end, and adds its counts to `totals`, which has
  // as many elements. Fails the test if the process does not end with 0.
  ~FaultProcess();
  FaultProcess(const FaultProcess&) = delete;
  FaultProcess& operator=(const FaultProcess&) = delete;

 private:
  const std::string tally_path_;
  std::vector<int>* const totals_;
  ChildProcess process_;
};

}  // namespace warpcall::testing
