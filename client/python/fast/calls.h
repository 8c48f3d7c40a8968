// The calls of one client in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "warpcall/call.h"
#include "warpcall/client.h"

namespace warpcall::fast {

// A call that was answered.
struct Answer {
  client::Result result;
};

// A call that ended otherwise.
struct Refusal {
  std::string code;  // "INVALID_ARGUMENT"
  std::string message;
  // Of the trailer grpc-retry-pushback-ms, where there was one.
  std::optional<double> pushback_seconds;
  std::string request_id;  // of the trailer warpcall-request-id, or empty
};

// An output's bytes, which Python sees by the buffer protocol, read-only.
struct OutputBytes {
  client::Tensor tensor;
};

// How a call is made that is more than a small one of arrays that are sent as they lie.
struct CallWay {
  bool stream = false;
  client::Cancellation* cancellation = nullptr;  // or null
  nanobind::object out_type = nanobind::none();  // the number of its data type
  nanobind::object out = nanobind::none();       // a writable C-contiguous array
};

// Thread-safe. All but the calls themselves happens with the GIL.
class Calls {
 public:
  Calls(const std::string& address, client::ClientOptions options);
  ~Calls() { Close(); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  // Makes a small call of arrays that need no conversion, and returns an Answer or a Refusal. None
  // if an input is anything else, there are no inputs, or together they have `bytes_max` or more.
  // `terms`: kernel, implementation, device, request_id, timeout in seconds, traceparent; each
  // empty, or 0, where there is none. Ctrl-C ends the call, here and at the server.
  nanobind::object RunReady(const nanobind::tuple& terms, const nanobind::dict& attributes,
                            const nanobind::tuple& inputs, int64_t bytes_max);
  // Any call, of Operands: an Answer or a Refusal.
  nanobind::object Run(const nanobind::tuple& terms, const nanobind::dict& attributes,
                       const nanobind::sequence& operands, const CallWay& way);

  // Cancels all calls in flight and waits until they have ended. Does not wait for a call of this
  // same thread, which a signal handler may have interrupted.
  void Close();

  // The cancellation that ends every call.
  client::Cancellation* closing() { return &closing_; }

 private:
  nanobind::object Make(client::Call call, bool stream);
  absl::StatusOr<client::Result> Wait(const client::Call& call, bool stream);

  client::Cancellation closing_;
  absl::Mutex mutex_;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  // Null when closed. A call keeps it until it has ended.
  std::shared_ptr<client::Client> client_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall::fast
