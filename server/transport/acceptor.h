// Accepts connections, and goes on whatever accept says.
//
// gRPC 1.51's own listeners end for good when accept fails, as it does while the process has no
// descriptor left: connections that somebody opens and closes again leave a server that nobody
// reaches any more and that calls itself ready.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/system/listen.h"
#include "server/transport/connections.h"

namespace warpcall {

class Acceptor {
 public:
  // Between an error of accept, or a connection too many, and the next look whether that has
  // passed.
  static constexpr absl::Duration kPause = absl::Milliseconds(100);

  // All are called on the acceptor's thread.
  struct Options {
    Connections* connections = nullptr;  // outlives the acceptor
    // As accept4: a non-blocking socket that is closed on exec, or the negative error.
    std::function<int(int listener)> accept = AcceptSocket;
    // Takes over a socket.
    std::function<void(int listener, int socket)> serve;
    // A connection was closed at once, beyond a limit.
    std::function<void()> on_refused = [] {};
    // Called with true when new connections are served again, with false when they no longer are:
    // accept fails, or the connection limit is reached. Starts as true.
    std::function<void(bool)> on_accepting = [](bool) {};
  };

  // Starts accepting. UNAVAILABLE if the process has no descriptor left for it.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Start(std::vector<ListeningSockets> listening,
                                                         Options options);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Ends listening. `serve` is not called any more when it returns.
  void Stop();
  // Closes all connections: see Connections::ShutDown. REQUIRES: it was stopped.
  void CloseConnections() { options_.connections->ShutDown(); }

 private:
  // Refusals and errors, of which one line in ten seconds tells.
  class Complaints;

  Acceptor(std::vector<ListeningSockets> listening, Options options, Descriptor stop);

  static int AcceptSocket(int listener);

  void Loop();
  // Until a connection or the end has come; while it is not accepting, for kPause at most.
  void Wait();
  // False: accept failed for a reason that concerns other connections, too.
  bool AcceptFrom(int listener);
  void Take(int listener, int socket);
  // Gives the socket another descriptor: one that no connection has had for as long as possible.
  // gRPC names a Unix socket's connection by it, and calls may outlast their connection a little.
  int Renumber(int socket);
  void SetAccepting(bool accepting);

  std::vector<ListeningSockets> listening_;
  const Options options_;
  const std::unique_ptr<Complaints> complaints_;
  const Descriptor stop_;       // an eventfd
  std::vector<pollfd> polled_;  // listeners, and last the one above
  bool accepting_ = true;
  int next_descriptor_ = 0;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace warpcall
