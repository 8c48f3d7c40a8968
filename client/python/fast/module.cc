// The module warpcall_fast: the C++ client, for the package warpcall (its _fast.py) alone.
#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/python/fast/calls.h"
#include "warpcall/call.h"
#include "warpcall/client.h"

namespace nb = nanobind;

namespace warpcall::fast {
namespace {

using client::Cancellation;
using client::ClientOptions;
using client::RetryOptions;

// attempts_max, backoff_initial, backoff_max, pushback_max, budget_max, budget_per_success; times
// in seconds.
RetryOptions ReadRetry(const nb::tuple& retry) {
  return {.attempts_max = nb::cast<int>(retry[0]),
          .backoff_initial = absl::Seconds(nb::cast<double>(retry[1])),
          .backoff_max = absl::Seconds(nb::cast<double>(retry[2])),
          .pushback_max = absl::Seconds(nb::cast<double>(retry[3])),
          .budget_max = nb::cast<double>(retry[4]),
          .budget_per_success = nb::cast<double>(retry[5])};
}

void MakeCalls(Calls* calls, const std::string& address, const nb::tuple& connection,
               const nb::tuple& retry) {
  ClientOptions options = {.retry = ReadRetry(retry),
                           .stall_timeout = absl::Seconds(nb::cast<double>(connection[1])),
                           .connections = nb::cast<int>(connection[0])};
  new (calls) Calls(address, std::move(options));
}

CallWay ReadWay(const nb::tuple& way) {
  CallWay read = {
      .stream = nb::cast<bool>(way[0]), .out_type = nb::borrow(way[2]), .out = nb::borrow(way[3])};
  if (!way[1].is_none()) read.cancellation = nb::cast<Cancellation*>(way[1]);
  return read;
}

nb::tuple ToTuple(absl::Span<const int64_t> shape) {
  nb::tuple tuple = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t i = 0; i < shape.size(); ++i)
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  return tuple;
}

// (number of its data type, shape) of an only output, whose bytes the answer itself lends: most
// have one, and each object more is felt in a small call. None of several, or none.
nb::object OnlyOutput(const Answer& answer) {
  if (answer.result.outputs.size() != 1) return nb::none();
  const client::Tensor& output = answer.result.outputs[0];
  return nb::make_tuple(static_cast<int>(output.data_type()), ToTuple(output.shape()));
}

// (number of its data type, shape, bytes) of each.
nb::list Outputs(const Answer& answer) {
  nb::list outputs;
  for (const client::Tensor& output : answer.result.outputs)
    outputs.append(nb::make_tuple(static_cast<int>(output.data_type()), ToTuple(output.shape()),
                                  nb::cast(OutputBytes{output})));
  return outputs;
}

// In the order of warpcall.Timing.
nb::tuple TimingOf(const Answer& answer) {
  const client::Timing& timing = answer.result.timing;
  return nb::make_tuple(timing.queue_ns, timing.copy_in_ns, timing.h2d_ns, timing.kernel_ns,
                        timing.d2h_ns, timing.total_ns);
}

// In the order of warpcall.LaunchInfo.
nb::tuple LaunchOf(const Answer& answer) {
  const client::LaunchInfo& launch = answer.result.launch;
  return nb::make_tuple(launch.bytes_moved, launch.flops, launch.theoretical_occupancy,
                        launch.waves, launch.gpu_kernels, launch.variant);
}

// As bf_getbuffer of `owner`, read-only.
int Lend(absl::Span<const char> data, PyObject* owner, Py_buffer* view, int flags) {
  static char no_bytes[1];
  void* begin = data.empty() ? no_bytes : const_cast<char*>(data.data());
  return PyBuffer_FillInfo(view, owner, begin, static_cast<Py_ssize_t>(data.size()), 1, flags);
}

int LendOutput(PyObject* self, Py_buffer* view, int flags) {
  return Lend(nb::inst_ptr<OutputBytes>(self)->tensor.data(), self, view, flags);
}

int LendOnlyOutput(PyObject* self, Py_buffer* view, int flags) {
  const std::vector<client::Tensor>& outputs = nb::inst_ptr<Answer>(self)->result.outputs;
  if (outputs.size() == 1) return Lend(outputs[0].data(), self, view, flags);
  PyErr_SetString(PyExc_BufferError, "an answer whose outputs are not one");
  view->obj = nullptr;
  return -1;
}

PyType_Slot output_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(LendOutput)}, {0, nullptr}};
PyType_Slot answer_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(LendOnlyOutput)},
                              {0, nullptr}};

void Define(nb::module_& module) {
  // A program may end with clients that it never closed.
  nb::set_leak_warnings(false);
  module.attr("__version__") = WARPCALL_VERSION;

  nb::class_<OutputBytes>(module, "OutputBytes", nb::type_slots(output_slots));
  nb::class_<Answer>(module, "Answer", nb::type_slots(answer_slots))
      .def_prop_ro("only_output", &OnlyOutput)
      .def_prop_ro("outputs", &Outputs)
      .def_prop_ro("timing", &TimingOf)
      .def_prop_ro("launch", &LaunchOf)
      .def_prop_ro("implementation", [](const Answer& a) { return a.result.implementation; })
      .def_prop_ro("device", [](const Answer& a) { return a.result.device; })
      .def_prop_ro("request_id", [](const Answer& a) { return a.result.request_id; })
      .def_prop_ro("stripes", [](const Answer& a) { return a.result.stripes; });
  nb::class_<Refusal>(module, "Refusal")
      .def_ro("code", &Refusal::code)
      .def_ro("message", &Refusal::message)
      .def_ro("pushback", &Refusal::pushback_seconds)
      .def_ro("request_id", &Refusal::request_id);

  nb::class_<Calls>(module, "Calls")
      .def("__init__", &MakeCalls)
      .def("run_ready", &Calls::RunReady)
      .def("run",
           [](Calls& calls, const nb::tuple& terms, const nb::dict& attributes,
              const nb::sequence& operands, const nb::tuple& way) {
             return calls.Run(terms, attributes, operands, ReadWay(way));
           })
      .def("close", &Calls::Close);
  nb::class_<Cancellation>(module, "Cancellation")
      .def(
          "__init__",
          [](Cancellation* cancellation, Calls& calls) {
            new (cancellation) Cancellation(calls.closing());
          },
          nb::keep_alive<1, 2>())
      .def("cancel", &Cancellation::Cancel, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace
}  // namespace warpcall::fast

NB_MODULE(warpcall_fast, module) { warpcall::fast::Define(module); }
