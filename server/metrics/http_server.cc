#include "server/metrics/http_server.h"

#include <httplib.h>

#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/common/status_macros.h"

namespace warpcall {
namespace {

constexpr char kTextFormat[] = "text/plain; version=0.0.4; charset=utf-8";
// A scrape and a probe or two at once; the others keep a client that sends slowly from shutting
// them out.
constexpr size_t kThreads = 4;
constexpr time_t kClientTimeoutSeconds = 5;
constexpr size_t kBodyBytesMax = 1024;  // of requests, which need none

struct HostPort {
  std::string host;
  int port = 0;
};

absl::StatusOr<HostPort> ParseHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort parsed;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &parsed.port) || parsed.port < 0 ||
      parsed.port > 65535)
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" is not HOST:PORT with a port of 0 to 65535"));
  parsed.host = address.substr(0, colon);
  if (parsed.host.front() == '[' && parsed.host.back() == ']')
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  return parsed;
}

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_keep_alive_max_count(1);
    server_.set_read_timeout(kClientTimeoutSeconds);
    server_.set_write_timeout(kClientTimeoutSeconds);
    server_.set_payload_max_length(kBodyBytesMax);
    // Not the library's SO_REUSEPORT: a second server on the port must fail, not share it.
    server_.set_socket_options([](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    });
    AddRoutes();
  }

  ~Impl() {
    if (!thread_.joinable()) return;
    server_.stop();
    thread_.join();
  }

  absl::Status Listen() {
    HostPort wanted;
    ASSIGN_OR_RETURN(wanted, ParseHostPort(options_.listen));
    const int port = wanted.port == 0 ? server_.bind_to_any_port(wanted.host)
                     : server_.bind_to_port(wanted.host, wanted.port) ? wanted.port
                                                                      : -1;
    if (port < 0)
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", options_.listen, ": the address is invalid or in use"));
    address_ = absl::StrCat(options_.listen.substr(0, options_.listen.rfind(':')), ":", port);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    // stop() is lost on a server that does not run yet.
    while (!server_.is_running()) std::this_thread::yield();
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }

 private:
  void AddRoutes() {
    server_.set_pre_routing_handler(
        [](const httplib::Request& request, httplib::Response& response) {
          if (request.method == "GET" || request.method == "HEAD")
            return httplib::Server::HandlerResponse::Unhandled;
          response.status = 405;
          response.set_header("Allow", "GET, HEAD");
          return httplib::Server::HandlerResponse::Handled;
        });
    server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(options_.scrape(), kTextFormat);
    });
    server_.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("ok\n", "text/plain");
    });
    server_.Get("/readyz", [this](const httplib::Request&, httplib::Response& response) {
      const absl::Status status = options_.ready();
      if (!status.ok()) response.status = 503;
      response.set_content(status.ok() ? "ok\n" : absl::StrCat(status.message(), "\n"),
                           "text/plain");
    });
  }

  const Options options_;
  httplib::Server server_;
  std::string address_;
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
