#include "server/metrics/http_server.h"

#include <httplib.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/common/status_macros.h"
#include "server/metrics/log_level_route.h"

namespace warpcall {
namespace {

constexpr char kTextFormat[] = "text/plain; version=0.0.4; charset=utf-8";
// A scrape and a probe or two at once; the others keep a client that sends slowly from shutting
// them out.
constexpr size_t kThreads = 4;
constexpr time_t kClientTimeoutSeconds = 5;
constexpr size_t kBodyBytesMax = 1024;  // of requests, which need none or a word
constexpr char kPlainText[] = "text/plain";
constexpr char kLogLevelPath[] = "/log_level";
// Below the threads that answer requests, above the CPU device's, which compute at 10: a scrape
// must get through while they are all at work.
constexpr int kScrapeNice = 5;

// The library compresses what it is given whole (with brotli at its highest level, if the client
// takes that), but not what it asks for.
void SetBody(std::string body, const char* content_type, httplib::Response* response) {
  const auto shared = std::make_shared<const std::string>(std::move(body));
  response->set_content_provider(shared->size(), content_type,
                                 [shared](size_t offset, size_t size, httplib::DataSink& sink) {
                                   return sink.write(shared->data() + offset, size);
                                 });
}

void SetReply(HttpReply reply, httplib::Response* response) {
  response->status = reply.status;
  SetBody(std::move(reply.body), kPlainText, response);
}

// Threads at a lower priority, a thing that Linux has for each thread; where it is refused they go
// on at the one they have.
class LowPriorityThreads final : public httplib::TaskQueue {
 public:
  LowPriorityThreads() : pool_(kThreads) {}

  void enqueue(std::function<void()> work) override {
    pool_.enqueue([work = std::move(work)] {
      [[maybe_unused]] thread_local const bool lowered = Lower();
      work();
    });
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  // Never raises it, which root could.
  static bool Lower() {
    return getpriority(PRIO_PROCESS, 0) < kScrapeNice &&
           setpriority(PRIO_PROCESS, 0, kScrapeNice) == 0;
  }

  httplib::ThreadPool pool_;
};

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
    server_.new_task_queue = [] { return new LowPriorityThreads(); };
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
          const bool can_put = request.path == kLogLevelPath;
          if (request.method == "GET" || request.method == "HEAD" ||
              (can_put && request.method == "PUT"))
            return httplib::Server::HandlerResponse::Unhandled;
          response.status = 405;
          response.set_header("Allow", can_put ? "GET, HEAD, PUT" : "GET, HEAD");
          return httplib::Server::HandlerResponse::Handled;
        });
    server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      SetBody(options_.scrape(), kTextFormat, &response);
    });
    server_.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
      SetReply({200, "ok\n"}, &response);
    });
    server_.Get("/readyz", [this](const httplib::Request&, httplib::Response& response) {
      const absl::Status status = options_.ready();
      if (status.ok()) return SetReply({200, "ok\n"}, &response);
      SetReply({503, absl::StrCat(status.message(), "\n")}, &response);
    });
    const auto show_level = [](const httplib::Request& request, httplib::Response& response) {
      SetReply(ShowLogLevel(request.remote_addr), &response);
    };
    const auto change_level = [](const httplib::Request& request, httplib::Response& response) {
      SetReply(ChangeLogLevel(request.remote_addr, request.body), &response);
    };
    server_.Get(kLogLevelPath, show_level);
    server_.Put(kLogLevelPath, change_level);
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
