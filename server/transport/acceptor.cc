#include "server/transport/acceptor.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/engine/clock.h"
#include "server/log/log.h"
#include "server/transport/peers.h"

namespace warpcall {
namespace {

// Connections of one listener before the others have their turn.
constexpr int kAcceptedMax = 64;
// The kernel's table of descriptors is as large as the largest one: 128 KiB.
constexpr int kDescriptorMax = 16383;
constexpr int64_t kComplaintNs = 10'000'000'000;

// Returns true if the error concerns only the connection being accepted, so that the next accept
// may succeed: Linux reports the connection's network errors through accept(2).
bool ConcernsOneConnection(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPERM:  // a firewall's rule
    case EPROTO:
    case ENOPROTOOPT:
    case ENETDOWN:
    case ENETUNREACH:
    case ENONET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
      return true;
    default:
      return false;
  }
}

}  // namespace

class Acceptor::Complaints {
 public:
  void Error(int error) {
    if (const int64_t others = Count(); others >= 0)
      Log(LogLevel::kError, "cannot accept connections; trying again",
          {{"error", strerror(error)}, {"left_out_before", others}});
  }

  void Refusal(Connections::Verdict verdict, const std::string& source,
               const Connections& connections) {
    const int64_t others = Count();
    if (others < 0) return;
    const bool of_source = verdict == Connections::Verdict::kTooManyFromSource;
    Log(LogLevel::kWarning,
        of_source ? "connection refused: too many from one user or address"
                  : "connection refused: too many are open",
        {{"from", source},
         {"limit", of_source ? connections.limits().from_one_source : connections.limits().all},
         {"open", connections.open()},
         {"left_out_before", others}});
  }

 private:
  // How many had no line before this one; -1: this has none either.
  int64_t Count() {
    const int64_t now_ns = MonotonicNs();
    if (now_ns < next_line_ns_) {
      ++left_out_;
      return -1;
    }
    next_line_ns_ = now_ns + kComplaintNs;
    return std::exchange(left_out_, 0);
  }

  int64_t next_line_ns_ = 0;
  int64_t left_out_ = 0;
};

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Start(std::vector<ListeningSockets> listening,
                                                          Options options) {
  Descriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (stop.get() < 0)
    return absl::UnavailableError(absl::StrCat("cannot accept connections: ", strerror(errno)));
  return absl::WrapUnique(new Acceptor(std::move(listening), std::move(options), std::move(stop)));
}

Acceptor::Acceptor(std::vector<ListeningSockets> listening, Options options, Descriptor stop)
    : listening_(std::move(listening)),
      options_(std::move(options)),
      complaints_(std::make_unique<Complaints>()),
      stop_(std::move(stop)) {
  for (const ListeningSockets& address : listening_)
    for (const Descriptor& socket : address.sockets()) polled_.push_back({socket.get(), POLLIN, 0});
  polled_.push_back({stop_.get(), POLLIN, 0});
  thread_ = std::thread([this] { Loop(); });
}

Acceptor::~Acceptor() { Stop(); }

void Acceptor::Stop() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
  listening_.clear();
}

int Acceptor::AcceptSocket(int listener) {
  const int socket = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  return socket < 0 ? -errno : socket;
}

void Acceptor::Loop() {
  for (;;) {
    Wait();
    if (polled_.back().revents != 0) return;
    bool works = true;
    for (size_t i = 0; i + 1 < polled_.size(); ++i)
      if (polled_[i].revents != 0 && !AcceptFrom(polled_[i].fd)) works = false;
    SetAccepting(works && !options_.connections->full());
  }
}

void Acceptor::Wait() {
  const auto pause_ms = static_cast<int>(absl::ToInt64Milliseconds(kPause));
  // During a pause, ignore the listeners: a waiting connection would end the pause at once.
  if (!accepting_ && poll(&polled_.back(), 1, pause_ms) != 0) return;
  poll(polled_.data(), polled_.size(), accepting_ ? -1 : 0);
}

bool Acceptor::AcceptFrom(int listener) {
  int error = 0;
  for (int i = 0; i < kAcceptedMax; ++i) {
    const int socket = options_.accept(listener);
    error = socket < 0 ? -socket : 0;
    if (error == EAGAIN || error == EWOULDBLOCK) return true;
    if (error == 0) {
      Take(listener, socket);
    } else if (!ConcernsOneConnection(error)) {
      break;
    }
  }
  // Errors of single connections that do not end, too: the next attempt is after a pause.
  if (error != 0) complaints_->Error(error);
  return error == 0;
}

void Acceptor::Take(int listener, int socket) {
  if (IsUnixSocket(socket)) socket = Renumber(socket);
  Connections& connections = *options_.connections;
  const Connections::Client client = {SourceOf(socket), PeerNameOf(socket)};
  const Connections::Verdict verdict = connections.Admit(socket, client);
  if (verdict == Connections::Verdict::kAdmitted) {
    // The only trace of a peer whose TLS handshake fails: gRPC's line has no address.
    Log(LogLevel::kDebug, "connection accepted", {{"peer", client.peer}});
    return options_.serve(listener, socket);
  }
  close(socket);
  complaints_->Refusal(verdict, client.source, connections);
  options_.on_refused();
}

int Acceptor::Renumber(int socket) {
  int moved = fcntl(socket, F_DUPFD_CLOEXEC, next_descriptor_);
  // Beyond the process's limit it begins anew.
  if (moved < 0) moved = fcntl(socket, F_DUPFD_CLOEXEC, 0);
  if (moved < 0) return socket;
  close(socket);
  next_descriptor_ = moved < kDescriptorMax ? moved + 1 : 0;
  return moved;
}

void Acceptor::SetAccepting(bool accepting) {
  if (std::exchange(accepting_, accepting) != accepting) options_.on_accepting(accepting);
}

}  // namespace warpcall
