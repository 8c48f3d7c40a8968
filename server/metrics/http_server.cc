#include "server/metrics/http_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/engine/clock.h"
#include "server/metrics/http_connection.h"
#include "server/metrics/log_level_route.h"
#include "server/metrics/scrape_thread.h"
#include "server/system/listen.h"

namespace warpcall {
namespace {

constexpr char kTextFormat[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr char kOpenMetrics[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";
constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kJson[] = "application/json";
// A page of another site must not take the answer for a script or a style.
constexpr char kStatusHeaders[] = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
constexpr char kNotFound[] = "unknown path; / shows the server and links to what else is here\n";
constexpr char kLogLevelPath[] = "/log_level";
// A scraper, some probes, people; with a request of 12 KiB each they hold 1.5 MiB.
constexpr size_t kConnectionsMax = 128;
constexpr size_t kConnectionsOfOneAddressMax = 64;
// Renderings that slow clients are being sent. Metrics may have some MiB on a server with GPUs.
constexpr size_t kTextsMax = 16;
// So many a round, so that those that are here get their turn.
constexpr int kAcceptedMax = 64;
constexpr int64_t kMsNs = 1'000'000;
constexpr int64_t kReplyNs = 10'000 * kMsNs;
constexpr int64_t kIdleNs = 60'000 * kMsNs;  // Prometheus scrapes every 15 s
constexpr int64_t kGoodbyeNs = 1'000 * kMsNs;
// When the process has no descriptor left and none of them is ours to give.
constexpr int64_t kAcceptPauseNs = 100 * kMsNs;
// A socket that listens, or -1.
int ListenOn(const addrinfo& address) {
  const int listener = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener < 0) return -1;
  // Not SO_REUSEPORT: a second server on the port must fail, not share it.
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener, address.ai_addr, address.ai_addrlen) == 0 && listen(listener, SOMAXCONN) == 0)
    return listener;
  close(listener);
  return -1;
}

int ListenOn(const HostPort& wanted) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(wanted.host.c_str(), absl::StrCat(wanted.port).c_str(), &hints, &found) != 0)
    return -1;
  int listener = -1;
  for (const addrinfo* at = found; at != nullptr && listener < 0; at = at->ai_next)
    listener = ListenOn(*at);
  freeaddrinfo(found);
  return listener;
}

int PortOf(int listener) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// The IP address, as text.
std::string HostOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text,
              sizeof(text));
  else
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof(text));
  return text;
}

std::string Render(const HttpServer::Options& options, Document document) {
  switch (document) {
    case Document::kPrometheus:
      return options.scrape(MetricsFormat::kPrometheus);
    case Document::kOpenMetrics:
      return options.scrape(MetricsFormat::kOpenMetrics);
    case Document::kStatusPage:
      return StatusPage(options.status());
    case Document::kStatusJson:
      break;
  }
  return StatusJson(options.status());
}

class Routes final : public HttpHandler {
 public:
  explicit Routes(const HttpServer::Options& options) : options_(options) {}

  bool WantsBody(const HttpRequest& request, const std::string& peer) const override {
    return request.method == "PUT" && request.path == kLogLevelPath &&
           MayUseLogLevel(request, peer);
  }

  HttpReply Answer(const HttpRequest& request, const std::string& peer) const override {
    const bool can_put = request.path == kLogLevelPath;
    const bool puts = can_put && request.method == "PUT";
    if (request.method != "GET" && request.method != "HEAD" && !puts)
      return {.status = 405, .body = "", .allow = can_put ? "GET, HEAD, PUT" : "GET, HEAD"};
    if (puts) return ChangeLogLevel(request, peer);
    if (can_put) return ShowLogLevel(request, peer);
    const bool gzip = request.takes_gzip;
    if (request.path == "/")
      return {.content_type = kHtml,
              .headers = absl::StrCat(kStatusHeaders, StatusPageHeaders()),
              .scrape = {{Document::kStatusPage, gzip}}};
    if (request.path == "/status.json")
      return {.content_type = kJson,
              .headers = kStatusHeaders,
              .scrape = {{Document::kStatusJson, gzip}}};
    if (request.path == "/metrics") {
      if (request.takes_open_metrics)
        return {.content_type = kOpenMetrics, .scrape = {{Document::kOpenMetrics, gzip}}};
      return {.content_type = kTextFormat, .scrape = {{Document::kPrometheus, gzip}}};
    }
    if (request.path == "/healthz") return {.status = 200, .body = "ok\n"};
    if (request.path != "/readyz") return {.status = 404, .body = kNotFound};
    const absl::StatusOr<std::string> ready = options_.ready();
    if (ready.ok()) return {.status = 200, .body = absl::StrCat(*ready, "\n")};
    return {.status = 503, .body = absl::StrCat(ready.status().message(), "\n")};
  }

 private:
  const HttpServer::Options& options_;
};

}  // namespace

// One thread waits for all connections at once and another renders documents: no client keeps
// another waiting.
class HttpServer::Impl {
 public:
  explicit Impl(Options options)
      : options_(std::move(options)),
        routes_(options_),
        limits_{absl::ToInt64Nanoseconds(options_.request_timeout), kReplyNs, kIdleNs, kGoodbyeNs},
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  ~Impl() {
    if (thread_.joinable()) {
      stopping_ = true;
      eventfd_write(wake_, 1);
      thread_.join();
    }
    scrapes_.reset();
    if (listener_ >= 0) close(listener_);
    close(wake_);
  }

  absl::Status Listen() {
    HostPort wanted;
    ASSIGN_OR_RETURN(wanted, ParseHostPort(options_.listen));
    listener_ = ListenOn(ForThisMachine(std::move(wanted)));
    if (listener_ < 0) {
      RETURN_IF_ERROR(CheckHostPort(options_.listen));
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", options_.listen, ": it was in use a moment ago"));
    }
    if (wake_ < 0) return absl::ResourceExhaustedError("no descriptors for the metrics port");
    address_ =
        absl::StrCat(options_.listen.substr(0, options_.listen.rfind(':')), ":", PortOf(listener_));
    scrapes_ = std::make_unique<ScrapeThread>(
        [this](Document document) { return Render(options_, document); },
        [this] { eventfd_write(wake_, 1); });
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }

 private:
  using Connections = std::vector<std::unique_ptr<HttpConnection>>;

  void Run() {
    GiveWayToRequests();
    while (!stopping_) Round(listener_);
    // Ends when the requests being answered are.
    const auto replies = [](const auto& connection) { return connection->replies(); };
    const int64_t give_up_ns = MonotonicNs() + kGoodbyeNs;
    while (std::any_of(connections_.begin(), connections_.end(), replies) &&
           MonotonicNs() < give_up_ns)
      Round(-1);
  }

  // Waits for something to happen and does what there is to do. `listener` -1: no more clients.
  void Round(int listener) {
    const int64_t before_ns = MonotonicNs();
    const bool paused = before_ns < accept_after_ns_;
    std::vector<pollfd> polled = {{wake_, POLLIN, 0}, {paused ? -1 : listener, POLLIN, 0}};
    for (const auto& connection : connections_)
      polled.push_back({connection->socket(), connection->events(), 0});
    poll(polled.data(), polled.size(), TimeoutMs(before_ns));
    const int64_t now_ns = MonotonicNs();
    for (size_t i = 0; i < connections_.size(); ++i) {
      auto& connection = connections_[i];
      const bool goes_on = (polled[2 + i].revents == 0 && !connection->has_more()) ||
                           Advance(connection.get(), now_ns);
      if (!goes_on || now_ns >= connection->deadline_ns()) connection.reset();
    }
    std::erase(connections_, nullptr);
    if (polled[0].revents != 0) TakeRenderings(now_ns);
    if (polled[1].revents != 0) Accept(now_ns);
  }

  int TimeoutMs(int64_t now_ns) const {
    int64_t until_ns = now_ns + (stopping_ ? kGoodbyeNs : kIdleNs);
    if (accept_after_ns_ > now_ns) until_ns = accept_after_ns_;
    for (const auto& connection : connections_)
      until_ns = std::min(until_ns, connection->has_more() ? now_ns : connection->deadline_ns());
    return static_cast<int>((std::max<int64_t>(until_ns - now_ns, 0) + kMsNs - 1) / kMsNs);
  }

  bool Advance(HttpConnection* connection, int64_t now_ns) {
    if (!connection->Advance(routes_, now_ns)) return false;
    if (connection->waits_for().has_value() && connection->rendering() == 0)
      connection->set_rendering(scrapes_->Request(*connection->waits_for()));
    return true;
  }

  void TakeRenderings(int64_t now_ns) {
    eventfd_t count;
    eventfd_read(wake_, &count);
    for (const ScrapeKind& kind : ScrapeThread::kKinds) {
      const ScrapeThread::Text newest = scrapes_->Take(kind);
      if (newest.text == nullptr) continue;
      MakeRoomForText();
      texts_.push_back(newest.text);
      for (auto& connection : connections_) {
        if (connection->waits_for() != kind || connection->rendering() > newest.number) continue;
        connection->Serve(newest.text, now_ns);
        if (!Advance(connection.get(), now_ns)) connection.reset();
      }
      std::erase(connections_, nullptr);
    }
  }

  // Clients that take their replies slowest go: those of the oldest rendering.
  void MakeRoomForText() {
    std::erase_if(texts_, [](const auto& text) { return text.expired(); });
    if (texts_.size() < kTextsMax) return;
    const std::shared_ptr<const std::string> oldest = texts_.front().lock();
    texts_.pop_front();
    std::erase_if(connections_,
                  [&](const auto& connection) { return connection->text() == oldest.get(); });
  }

  void Accept(int64_t now_ns) {
    for (int i = 0; i < kAcceptedMax; ++i) {
      sockaddr_storage peer = {};
      socklen_t bytes = sizeof(peer);
      const int socket = accept4(listener_, reinterpret_cast<sockaddr*>(&peer), &bytes,
                                 SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (socket < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        // No descriptors or no memory: the oldest gives its own. The listener stays, whatever
        // accept says.
        if (connections_.empty()) accept_after_ns_ = now_ns + kAcceptPauseNs;
        DropOldest(BusiestAddress());
        return;
      }
      const int on = 1;
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      Add(socket, HostOf(peer), now_ns);
    }
  }

  void Add(int socket, const std::string& peer, int64_t now_ns) {
    const auto is_peers = [&](const auto& connection) { return connection->peer() == peer; };
    const auto of_peer = std::count_if(connections_.begin(), connections_.end(), is_peers);
    if (static_cast<size_t>(of_peer) >= kConnectionsOfOneAddressMax) DropOldest(peer);
    if (connections_.size() >= kConnectionsMax) DropOldest(BusiestAddress());
    connections_.push_back(std::make_unique<HttpConnection>(socket, peer, limits_, now_ns));
    // Most requests are here by now, and so are answered before others can take their place.
    if (!Advance(connections_.back().get(), now_ns)) connections_.pop_back();
  }

  // The address that has the most connections.
  std::string BusiestAddress() const {
    std::map<std::string, int> counts;
    for (const auto& connection : connections_) ++counts[connection->peer()];
    const auto most =
        std::max_element(counts.begin(), counts.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == counts.end() ? "" : most->first;
  }

  // Drops the connection of `peer` that has been idle longest; one that is being answered only
  // where all are.
  void DropOldest(const std::string& peer) {
    const auto rank = [&](const auto& connection) {
      return std::make_tuple(connection->peer() != peer, connection->replies(),
                             connection->since_ns());
    };
    const auto oldest =
        std::min_element(connections_.begin(), connections_.end(),
                         [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    if (oldest != connections_.end()) connections_.erase(oldest);
  }

  const Options options_;
  const Routes routes_;
  const HttpConnection::Limits limits_;
  const int wake_;  // an eventfd: a rendering has ended, or the server is to stop
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> stopping_{false};
  std::unique_ptr<ScrapeThread> scrapes_;
  // The thread's own from here on.
  int64_t accept_after_ns_ = 0;
  Connections connections_;
  std::deque<std::weak_ptr<const std::string>> texts_;  // that are being sent, oldest first
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Options options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() = default;

const std::string& HttpServer::address() const { return impl_->address(); }

}  // namespace warpcall
