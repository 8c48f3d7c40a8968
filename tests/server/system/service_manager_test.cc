#include "server/system/service_manager.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/system/listen.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

// The service manager's end: receives at a path, or at "@NAME".
class Manager {
 public:
  explicit Manager(const std::string& name) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
              0)
        << name;
    setenv(kNotifySocketVariable, name.c_str(), 1);
  }
  ~Manager() { unsetenv(kNotifySocketVariable); }

  // "" when nothing has come.
  std::string Receive() {
    char text[4096];
    const ssize_t bytes = recv(socket_.get(), text, sizeof(text), MSG_DONTWAIT);
    return bytes < 0 ? "" : std::string(text, static_cast<size_t>(bytes));
  }

 private:
  const Descriptor socket_{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

std::string ErrorWith(const std::string& variable) {
  setenv(kNotifySocketVariable, variable.c_str(), 1);
  const absl::Status sent = SendToServiceManager("READY=1");
  unsetenv(kNotifySocketVariable);
  return std::string(sent.message());
}

TEST(ServiceManager, IsToldAtItsSocket) {
  const testing::TempFolder folder;
  for (const std::string& name :
       {folder.Path("notify"), absl::StrCat("@warpcall-test-", getpid())}) {
    Manager manager(name);
    EXPECT_TRUE(SendToServiceManager("READY=1\nSTATUS=serving").ok()) << name;
    EXPECT_EQ(manager.Receive(), "READY=1\nSTATUS=serving") << name;
    EXPECT_EQ(manager.Receive(), "");
  }
}

// A name of as many bytes as fit, and one more.
TEST(ServiceManager, ANameHasALimit) {
  const std::string longest =
      absl::StrCat("@", std::string(sizeof(sockaddr_un::sun_path) - 2, 'x'));
  Manager manager(longest);
  EXPECT_TRUE(SendToServiceManager("READY=1").ok());
  EXPECT_EQ(manager.Receive(), "READY=1");
  EXPECT_TRUE(absl::StrContains(ErrorWith(longest + "x"), "is not /PATH or @NAME of at most 107"));
}

TEST(ServiceManager, WithoutOneThereIsNothingToTell) {
  unsetenv(kNotifySocketVariable);
  EXPECT_TRUE(SendToServiceManager("READY=1").ok());
  EXPECT_EQ(ErrorWith(""), "");
}

TEST(ServiceManager, ErrorsNameTheSocket) {
  for (const char* const name : {"notify", "@", "/", "vsock:2:1"})
    EXPECT_TRUE(absl::StrContains(ErrorWith(name), absl::StrCat("NOTIFY_SOCKET: \"", name, "\"")))
        << ErrorWith(name);
  EXPECT_EQ(ErrorWith("/no/such/socket"), "/no/such/socket: No such file or directory");
}

}  // namespace
}  // namespace warpcall
