#include "client/python/fast/calls.h"

#include <atomic>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/python/fast/arguments.h"
#include "warpcall/client.h"

namespace nb = nanobind;

namespace warpcall::fast {
namespace {

// The calls that this thread is in: more than one when a signal's handler makes another.
thread_local int calls_here = 0;

// Whether Python's main thread is to go on with the call that it waits for.
class SignalWatch {
 public:
  // Asked without the GIL.
  bool IsQuiet() {
    if (raised_) return false;
    // Handlers run in the main thread alone, and only a call's own thread asks on its behalf.
    if (std::this_thread::get_id() != thread_) return true;
    nb::gil_scoped_acquire gil;
    raised_ = PyErr_CheckSignals() != 0;
    return !raised_;
  }

  // Throws what a handler raised, if one did.
  void Check() const {
    if (raised_) throw nb::python_error();
  }

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
  std::atomic<bool> raised_ = false;
};

nb::object ToPython(absl::StatusOr<client::Result> result) {
  if (result.ok()) return nb::cast(Answer{*std::move(result)});
  const absl::Status& status = result.status();
  Refusal refusal = {.code = absl::StatusCodeToString(status.code()),
                     .message = std::string(status.message()),
                     .pushback_seconds = std::nullopt,
                     .request_id = client::RequestIdOf(status)};
  if (refusal.code.empty()) refusal.code = "UNKNOWN";
  if (const std::optional<int64_t> pushback_ms = client::RetryPushbackMs(status))
    refusal.pushback_seconds = static_cast<double>(*pushback_ms) / 1e3;
  return nb::cast(std::move(refusal));
}

client::Call MakeCall(const nb::tuple& terms) {
  client::Call call = {.kernel = ReadText(terms[0])};
  call.options = {.implementation = ReadText(terms[1]),
                  .device = ReadText(terms[2]),
                  .request_id = ReadText(terms[3]),
                  .timeout = absl::Seconds(nb::cast<double>(terms[4])),
                  .traceparent = ReadText(terms[5])};
  return call;
}

}  // namespace

Calls::Calls(const std::string& address, client::ClientOptions options)
    : client_(std::make_shared<client::Client>(address, std::move(options))) {}

nb::object Calls::RunReady(const nb::tuple& terms, const nb::dict& attributes,
                           const nb::tuple& inputs, int64_t bytes_max) {
  Inputs arrays;
  for (const nb::handle input : inputs)
    if (!arrays.AddArray(input)) return nb::none();
  auto read = ReadAttributes(attributes);
  if (inputs.size() == 0 || arrays.bytes() >= bytes_max || !read.has_value()) return nb::none();
  client::Call call = MakeCall(terms);
  call.attributes = *std::move(read);
  call.inputs = arrays.TakeTensors();
  return Make(std::move(call), /*stream=*/false);
}

nb::object Calls::Run(const nb::tuple& terms, const nb::dict& attributes,
                      const nb::sequence& operands, const CallWay& way) {
  Inputs inputs;
  for (const nb::handle operand : operands) inputs.AddOperand(nb::cast<nb::tuple>(operand));
  auto read = ReadAttributes(attributes);
  if (!read.has_value()) throw nb::type_error("attributes of types that the service has not");
  client::Call call = MakeCall(terms);
  call.attributes = *std::move(read);
  call.inputs = inputs.TakeTensors();
  LentBytes out;
  if (!way.out.is_none()) {
    if (!out.Take(way.out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) throw nb::python_error();
    const Py_buffer& view = out.view();
    call.destinations = {
        {{static_cast<DataType>(nb::cast<int>(way.out_type)), {view.shape, view.shape + view.ndim}},
         out.bytes()}};
  }
  call.options.cancellation = way.cancellation;
  return Make(std::move(call), way.stream);
}

nb::object Calls::Make(client::Call call, bool stream) {
  SignalWatch watch;
  client::Cancellation ours(&closing_, [&watch] { return watch.IsQuiet(); });
  if (call.options.cancellation == nullptr) call.options.cancellation = &ours;
  absl::StatusOr<client::Result> result = absl::CancelledError();
  {
    nb::gil_scoped_release release;
    ++calls_here;
    result = Wait(call, stream);
    --calls_here;
  }
  watch.Check();
  return ToPython(std::move(result));
}

absl::StatusOr<client::Result> Calls::Wait(const client::Call& call, bool stream) {
  std::shared_ptr<client::Client> client;
  {
    absl::MutexLock lock(&mutex_);
    if (client_ == nullptr) return absl::CancelledError("the client is closed");
    client = client_;
    ++running_;
  }
  absl::StatusOr<client::Result> result =
      stream ? client->ExecuteStream(call) : client->Execute(call);
  client.reset();  // of a closed one the last call ends its threads, before Close returns
  absl::MutexLock lock(&mutex_);
  --running_;
  return result;
}

void Calls::Close() {
  nb::gil_scoped_release release;
  std::shared_ptr<client::Client> client;
  {
    absl::MutexLock lock(&mutex_);
    client = std::move(client_);
  }
  closing_.Cancel();
  client.reset();
  if (calls_here > 0) return;
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* running) { return *running == 0; }, &running_));
}

}  // namespace warpcall::fast
