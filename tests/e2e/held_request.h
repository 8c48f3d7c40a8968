// Requests that hold their lane until the test lets go, however fast the machine is.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"

namespace warpcall::testing {

// `more` flags of a server that has the kernel which waits.
inline std::vector<std::string> FlagsForHeld(std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--test_fault_injection", "--self_test=off"});
  return more;
}

// Returns true when a lane runs a request and nothing waits.
inline bool LaneIsHeld(const ServerProcess& server) {
  return server.Sum("warpcall_staging_bytes", {"state=\"used\""}) > 0 &&
         server.Sum("warpcall_queue_depth") == 0;
}

// Holds requests back until it is opened.
class Gate {
 public:
  Gate() {
    static int number = 0;
    path_ = absl::StrCat(::testing::TempDir(), "/warpcall-gate-", getpid(), "-", ++number);
    close(open(path_.c_str(), O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(access(path_.c_str(), F_OK), 0) << path_;
  }
  ~Gate() { Open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void Open() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

  // Holds its lane until the gate opens, and then copies `elements` floats.
  v1::ExecuteRequest HeldRequest(int64_t elements = 4) const {
    v1::ExecuteRequest request = Request("held", {FloatTensor(elements)});
    (*request.mutable_attributes())["gate"].set_string_value(path_);
    return request;
  }

 private:
  std::string path_;
};

}  // namespace warpcall::testing
