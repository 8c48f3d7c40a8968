// The port for operators: a page at /, /metrics for Prometheus, /healthz and /readyz for probes,
// /log_level.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/metrics/server_status.h"
#include "server/metrics/text_format.h"

namespace warpcall {

//   GET /             200 with `status` as a page for people (StatusPage)
//   GET /status.json  200 with `status` for programs (StatusJson)
//   GET /metrics      200 with the text of `scrape`: OpenMetrics 1.0 for a client that accepts it
//                     as gladly as plain text, Prometheus' text format 0.0.4 for all other clients
//   GET /healthz      200 while the process lives
//   GET /readyz       200 with the text of `ready`, or 503 with the reason that `ready` gives
//   GET, PUT /log_level   log_level_route.h
//
// HEAD works as GET without a body. Any other method gives 405, any other path 404. Metrics and
// status are compressed by gzip for a client that takes that.
//
// The server bounds what clients can use. A head may have 8 KiB (431), a body 4 KiB (413), which is
// read only where it matters. A request must come within request_timeout, and the client must read
// the reply within ten seconds. There may be 128 connections, 64 of one address; the longest idle
// one makes room for the next. Requests for one document share renderings; at most 16 are being
// sent. So probes are answered whatever other clients send or leave unread.
class HttpServer {
 public:
  struct Options {
    std::string listen;  // HOST:PORT, [IPV6]:PORT; port 0: any free one
    absl::Duration request_timeout = absl::Seconds(5);
    // Called on a thread of its own, one call at a time.
    std::function<std::string(MetricsFormat)> scrape;
    // Called as `scrape`.
    std::function<ServerStatus()> status = [] { return ServerStatus(); };
    // Called on the thread that answers all requests; must not wait.
    std::function<absl::StatusOr<std::string>()> ready;
  };

  // Serves when it returns. INVALID_ARGUMENT or UNAVAILABLE names the address and what is wrong
  // with it.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Options options);

  // Ends when the requests being answered are.
  ~HttpServer();

  // HOST:PORT with the port that was bound.
  const std::string& address() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace warpcall
