#include "client/cli/top/metrics_port.h"

#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

constexpr char kPort[] = "9470";
constexpr size_t kReadBytes = 16384;

struct HostPort {
  std::string host, port;
};

absl::StatusOr<HostPort> Split(std::string address) {
  // Accepts the form that browsers show.
  if (absl::string_view text = address; absl::ConsumePrefix(&text, "http://")) {
    absl::ConsumeSuffix(&text, "/");
    address = std::string(text);
  }
  absl::string_view host = address, port = kPort;
  const size_t colon = address.rfind(':');
  const bool has_port = colon != std::string::npos && !absl::EndsWith(address, "]") &&
                        (address[0] == '[' || address.find(':') == colon);
  if (has_port) {
    host = host.substr(0, colon);
    port = absl::string_view(address).substr(colon + 1);
  }
  const bool bracket = absl::ConsumePrefix(&host, "[");
  int number = 0;
  if (bracket != absl::ConsumeSuffix(&host, "]") || host.empty() ||
      !absl::SimpleAtoi(port, &number) || number < 1 || number > 65535)
    return absl::InvalidArgumentError(
        absl::StrCat("the address '", address,
                     "' is not that of a metrics port: HOST, HOST:PORT or [IPV6]:PORT with a port "
                     "from 1 to 65535"));
  return HostPort{std::string(host), std::string(port)};
}

// One connection, until its deadline.
class Connection {
 public:
  Connection(int socket, absl::Time deadline, int cancel)
      : socket_(socket), deadline_(deadline), cancel_(cancel) {}
  ~Connection() { close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  absl::Status Connect(const sockaddr_storage& address, socklen_t bytes) {
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), bytes) == 0)
      return absl::OkStatus();
    if (errno != EINPROGRESS) return absl::UnavailableError(strerror(errno));
    RETURN_IF_ERROR(Await(POLLOUT));
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? absl::OkStatus() : absl::UnavailableError(strerror(error));
  }

  absl::Status Send(absl::string_view text) {
    while (!text.empty()) {
      RETURN_IF_ERROR(Await(POLLOUT));
      const ssize_t put = send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (put < 0 && errno != EAGAIN && errno != EINTR)
        return absl::UnavailableError(strerror(errno));
      text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(put, 0)));
    }
    return absl::OkStatus();
  }

  // All bytes until the peer closes, or some more than kReplyBytesMax.
  absl::StatusOr<std::string> ReceiveAll() {
    std::string text;
    while (text.size() <= MetricsPort::kReplyBytesMax) {
      RETURN_IF_ERROR(Await(POLLIN));
      char bytes[kReadBytes];
      const ssize_t got = recv(socket_, bytes, sizeof(bytes), 0);
      if (got == 0) return text;
      if (got < 0 && errno != EAGAIN && errno != EINTR)
        return absl::UnavailableError(strerror(errno));
      text.append(bytes, static_cast<size_t>(std::max<ssize_t>(got, 0)));
    }
    return text;
  }

 private:
  absl::Status Await(short event) {
    for (;;) {
      pollfd polled[] = {{socket_, event, 0}, {cancel_, POLLIN, 0}};
      const int64_t left_ms = absl::ToInt64Milliseconds(deadline_ - absl::Now());
      if (left_ms <= 0) return absl::DeadlineExceededError("it does not answer in time");
      const int ready = poll(polled, 2, static_cast<int>(std::min<int64_t>(left_ms, 60'000)) + 1);
      if (polled[1].revents != 0) return absl::CancelledError("no longer wanted");
      if (ready > 0) return absl::OkStatus();
    }
  }

  const int socket_;
  const absl::Time deadline_;
  const int cancel_;
};

struct Reply {
  int status = 0;
  std::string body;
};

// Errors are the end of a sentence about the answer.
absl::StatusOr<Reply> ReadReply(const std::string& text) {
  constexpr absl::string_view kLength = "content-length:";
  const size_t end = text.find("\r\n\r\n");
  Reply reply;
  if (end == std::string::npos || !absl::StartsWith(text, "HTTP/1.") || end < 12 ||
      !absl::SimpleAtoi(text.substr(9, 3), &reply.status))
    return absl::InternalError("is not one of HTTP/1: is that the gRPC port?");
  reply.body = text.substr(end + 4);
  for (size_t line = text.find("\r\n"); line < end; line = text.find("\r\n", line + 2)) {
    const std::string field = text.substr(line + 2, text.find("\r\n", line + 2) - line - 2);
    size_t length = 0;
    if (absl::StartsWithIgnoreCase(field, kLength) &&
        (!absl::SimpleAtoi(field.substr(kLength.size()), &length) || length != reply.body.size()))
      return absl::UnavailableError("was cut off");
  }
  return reply;
}

TopQuantile QuantileOf(const json& traffic, const std::string& name) {
  const auto found = traffic.find(name + "_seconds");
  if (found == traffic.end() || found->is_null()) return {};
  return {found->get<double>(), traffic.value(name + "_is_lower_bound", false)};
}

TopTraffic TrafficOf(const json& value) {
  const json traffic = value.value("last_minute", json::object());
  return {traffic.value("requests_per_second", 0.0), traffic.value("failed_per_second", 0.0),
          QuantileOf(traffic, "p50"), QuantileOf(traffic, "p99"), QuantileOf(traffic, "queue_p99")};
}

TopDevice DeviceOf(const json& value) {
  TopDevice device{.name = value.value("name", ""),
                   .is_open = value.value("open", true),
                   .healthy = value.value("healthy", false)};
  device.memory_used_bytes = value.value("memory_used_bytes", 0.0);
  device.memory_total_bytes = value.value("memory_total_bytes", 0.0);
  device.resident_used_bytes = value.value("resident_used_bytes", 0.0);
  device.resident_tensors = value.value("resident_tensors", int64_t{0});
  if (const auto copy = value.find("copy_bytes_per_second");
      copy != value.end() && !copy->is_null())
    device.copy_bytes_per_second = copy->get<double>();
  for (const auto& [name, rate] : value.value("multiply_adds_flops_per_second", json::object())
                                      .get<std::map<std::string, json>>())
    if (!rate.is_null()) device.multiply_adds.emplace_back(name, rate.get<double>());
  device.queue_depth = value.value("queue_depth", int64_t{0});
  device.queue_oldest_seconds = value.value("queue_oldest_seconds", 0.0);
  return device;
}

TopKernel KernelOf(const json& value) {
  return {value.value("name", ""), value.value("auto_implementation", ""),
          value.value("auto_requests", int64_t{0}), value.value("requests", int64_t{0}),
          TrafficOf(value)};
}

TopInspection InspectionOf(const json& value) {
  return {value.value("unix_seconds", 0.0), value.value("method", ""),
          value.value("kernel", ""),        value.value("push", ""),
          value.value("outcome", ""),       value.value("principal", ""),
          value.value("seconds", 0.0)};
}

// Throws what nlohmann does where a member is of another type.
TopStatus StatusOf(const json& value) {
  TopStatus status{.version = value.at("version").get<std::string>(),
                   .phase = value.value("phase", ""),
                   .readiness = value.value("readiness", ""),
                   .ready = value.at("ready").get<bool>()};
  status.uptime_seconds = value.value("uptime_seconds", 0.0);
  status.unix_seconds = value.value("unix_seconds", 0.0);
  status.window_seconds = value.value("window_seconds", 0.0);
  status.last_minute = TrafficOf(value);
  for (const json& device : value.value("devices", json::array()))
    status.devices.push_back(DeviceOf(device));
  for (const json& kernel : value.value("kernels", json::array()))
    status.kernels.push_back(KernelOf(kernel));
  for (const json& inspection : value.value("inspections", json::array()))
    status.inspections.push_back(InspectionOf(inspection));
  return status;
}

}  // namespace

absl::StatusOr<MetricsPort> MetricsPort::Find(const std::string& address) {
  ASSIGN_OR_RETURN(const HostPort wanted, Split(address));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(wanted.host.c_str(), wanted.port.c_str(), &hints, &found);
  if (error != 0)
    return absl::UnavailableError(
        absl::StrCat("the host '", wanted.host, "' is unknown: ", gai_strerror(error)));
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  MetricsPort port;
  port.address_ = absl::StrContains(wanted.host, ':')
                      ? absl::StrCat("[", wanted.host, "]:", wanted.port)
                      : absl::StrCat(wanted.host, ":", wanted.port);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Address& kept = port.addresses_.emplace_back();
    memcpy(&kept.storage, at->ai_addr, at->ai_addrlen);
    kept.bytes = at->ai_addrlen;
  }
  return port;
}

absl::StatusOr<std::string> MetricsPort::Ask(absl::Time deadline, int cancel) const {
  absl::Status refused = absl::UnavailableError("it has no address");
  for (const Address& address : addresses_) {
    const int socket =
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket < 0) {  // as where the machine has no IPv6
      refused = absl::UnavailableError(strerror(errno));
      continue;
    }
    Connection connection(socket, deadline, cancel);
    refused = connection.Connect(address.storage, address.bytes);
    if (!refused.ok()) continue;
    // To a client of HTTP/1.0 nobody sends chunks.
    RETURN_IF_ERROR(connection.Send(absl::StrCat("GET /status.json HTTP/1.0\r\nHost: ", address_,
                                                 "\r\nAccept: application/json\r\n\r\n")));
    return connection.ReceiveAll();
  }
  return refused;
}

absl::StatusOr<json> MetricsPort::ReadStatus(absl::Duration timeout, int cancel) const {
  const absl::StatusOr<std::string> text = Ask(absl::Now() + timeout, cancel);
  if (!text.ok())
    return absl::Status(
        text.status().code(),
        absl::StrCat("no metrics port answers at ", address_, ": ", text.status().message(),
                     "; is warpcalld running there, with --metrics_listen=", address_,
                     "? --metrics names another port"));
  if (text->size() > kReplyBytesMax)
    return absl::InternalError(absl::StrCat(
        "the answer of ", address_, " is longer than the limit of ", kReplyBytesMax, " bytes"));
  const absl::StatusOr<Reply> reply = ReadReply(*text);
  if (!reply.ok())
    return absl::Status(reply.status().code(),
                        absl::StrCat("the answer of ", address_, " ", reply.status().message()));
  if (reply->status == 404)
    return absl::UnimplementedError(
        absl::StrCat("the server at ", address_,
                     " has no /status.json: it is no warpcalld, or is older than this command"));
  if (reply->status != 200)
    return absl::UnavailableError(
        absl::StrCat(address_, " answers /status.json with HTTP status ", reply->status));
  json value = json::parse(reply->body, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded())
    return absl::InternalError(absl::StrCat("the answer of ", address_, " is not JSON"));
  return value;
}

absl::StatusOr<TopStatus> MetricsPort::ToTopStatus(const json& value) const {
  try {
    TopStatus status = StatusOf(value);
    status.address = address_;
    return status;
  } catch (const json::exception& error) {
    return absl::InternalError(
        absl::StrCat("the answer of ", address_, " is not a status of warpcalld: ", error.what()));
  }
}

}  // namespace warpcall::cli
