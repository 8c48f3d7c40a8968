// Tensors that stay on the server: warpcall put, get, free, tensors.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/common/command.h"
#include "client/cli/common/inputs.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/output_file.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/table.h"
#include "proto/common/status_macros.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

// How long until a tensor ends unused.
std::string LeftText(absl::Time expires) {
  const absl::Duration left = expires - absl::Now();
  return left <= absl::ZeroDuration() ? "now"
                                      : absl::FormatDuration(absl::Ceil(left, absl::Seconds(1)));
}

std::string ShapeText(absl::Span<const int64_t> shape) { return absl::StrJoin(shape, "x"); }

std::string BytesText(int64_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

std::string TensorText(DataType type, absl::Span<const int64_t> shape) {
  return absl::StrCat(DataTypeName(type), " ", ShapeText(shape));
}

// Handles are to be copied: figures are never broken into lines, as text is.
Table TensorsTable() { return Table({">HANDLE", "DEVICE", ">BYTES", ">ENDS UNUSED IN", "TENSOR"}); }

// A handle as people copy it: with the mark that inputs have, or without.
std::string HandleOf(absl::string_view text) {
  return std::string(absl::StripPrefix(text, HandleText("")));
}

struct PutArguments {
  explicit PutArguments(const Arguments& arguments) : timeout(arguments) {
    arguments.Add("file", &file, "A .npy file, - for stdin").Required().TypeName("FILE");
    arguments
        .Add("--type", &reading.type,
             "Require this element type; bfloat16 reads uint16 files as raw bits")
        .IsDataType();
    arguments
        .Add("--cast", &reading.cast,
             "Convert the elements to this type, from float64 and integers too")
        .IsDataType();
    arguments.Add("--device", &put.device,
                  "Put on this device from `warpcall devices`; default: server's choice");
    arguments.Add("--label", &put.label, "Text that `warpcall tensors` shows");
    ttl.Add(arguments, "Keep the tensor for this long after its last use");
    arguments.AddFlag("--evictable", &put.evictable,
                      "Let the server evict the tensor when another needs the memory");
  }

  TimeoutOption timeout;
  std::string file;
  InputReading reading{.can_cast = true};
  TtlOption ttl;
  client::PutOptions put;
};

int RunPut(const Globals& globals, const PutArguments& arguments) {
  client::PutOptions options = arguments.put;
  const auto ttl = arguments.ttl.duration();
  if (!ttl.ok()) return UsageError(ttl.status());
  options.ttl = *ttl;
  options.timeout = arguments.timeout.duration();
  const auto tensors = ReadInputs({arguments.file}, arguments.reading);
  if (!tensors.ok()) return UsageError(tensors.status());
  const client::Tensor& tensor = tensors->front();
  client::Client client(globals.server, OptionsOf(globals));
  absl::StatusOr<client::Resident> resident = absl::UnknownError("not called");
  {
    const Progress progress(absl::StrCat("putting ", arguments.file, " on ", globals.server));
    resident = client.Put(tensor, options);
  }
  if (!resident.ok()) return Refused(resident.status());
  if (globals.json) {
    PrintJson({{"handle", resident->tensor.handle()},
               {"data_type", DataTypeName(tensor.data_type())},
               {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
               {"bytes", resident->bytes},
               {"device", resident->device},
               {"expires", TimeText(resident->expires)},
               {"existed", resident->existed}});
    return kExitOk;
  }
  Table table = TensorsTable();
  table.AddRow({HandleText(resident->tensor.handle()), resident->device, BytesText(resident->bytes),
                LeftText(resident->expires), TensorText(tensor.data_type(), tensor.shape())});
  PrintText(table.ToString());
  return kExitOk;
}

struct GetArguments {
  explicit GetArguments(const Arguments& arguments) : timeout(arguments) {
    arguments.Add("handle", &handle, "A handle from `warpcall put` or `tensors`").Required();
    arguments.Add("--output", &output, "Write the tensor to this .npy file, - for stdout")
        .Required()
        .TypeName("FILE");
  }

  TimeoutOption timeout;
  std::string handle;
  std::string output;
};

int RunGet(const Globals& globals, const GetArguments& arguments) {
  if (const absl::Status status = CheckTensorOutput(arguments.output, globals.json); !status.ok())
    return UsageError(status);
  client::Client client(globals.server, OptionsOf(globals));
  absl::StatusOr<client::Tensor> tensor = absl::UnknownError("not called");
  {
    const Progress progress(absl::StrCat("getting ", arguments.handle));
    tensor = client.Get(HandleOf(arguments.handle), arguments.timeout.duration());
  }
  if (!tensor.ok()) return Refused(tensor.status());
  const bool to_stdout = NamesStdout(arguments.output);
  {
    const CleanEnd clean_end;
    if (const absl::Status status = WriteTensor(arguments.output, *tensor); !status.ok())
      return to_stdout ? Refused(status) : UsageError(status);
  }
  if (globals.json) {
    PrintJson({{"file", arguments.output},
               {"data_type", DataTypeName(tensor->data_type())},
               {"shape", std::vector<int64_t>(tensor->shape().begin(), tensor->shape().end())},
               {"bytes", tensor->data().size()}});
  } else if (!to_stdout) {
    Table table({"OUTPUT", "TYPE", "SHAPE", ">BYTES"});
    table.AddRow({arguments.output, DataTypeName(tensor->data_type()), ShapeText(tensor->shape()),
                  BytesText(static_cast<int64_t>(tensor->data().size()))});
    PrintText(table.ToString());
  }
  return kExitOk;
}

struct FreeArguments {
  explicit FreeArguments(const Arguments& arguments) : timeout(arguments) {
    arguments.AddRepeated("handles", &handles, "Handles from `warpcall put` or `tensors`")
        .Required()
        .TakesAll();
  }

  TimeoutOption timeout;
  std::vector<std::string> handles;
};

int RunFree(const Globals& globals, const FreeArguments& arguments) {
  std::vector<std::string> handles;
  for (const std::string& handle : arguments.handles) handles.push_back(HandleOf(handle));
  client::Client client(globals.server, OptionsOf(globals));
  const auto report = client.Free(handles, arguments.timeout.duration());
  if (!report.ok()) return Refused(report.status());
  if (globals.json) {
    PrintJson({{"bytes", report->bytes}, {"unknown", report->unknown}});
  } else {
    PrintText(absl::StrCat("freed ", handles.size() - report->unknown.size(), " of ",
                           handles.size(), ", ", BytesText(report->bytes), "\n"));
  }
  if (report->unknown.empty()) return kExitOk;
  return Fail(absl::NotFoundError(absl::StrCat("the server has no tensor of yours under ",
                                               absl::StrJoin(report->unknown, ", "))),
              kExitRefused);
}

json ToJson(const client::TensorInfo& tensor) {
  return {{"handle", tensor.handle},
          {"label", tensor.label},
          {"device", tensor.device},
          {"data_type", DataTypeName(tensor.spec.data_type)},
          {"shape", tensor.spec.shape},
          {"bytes", tensor.bytes},
          {"created", TimeText(tensor.created)},
          {"expires", TimeText(tensor.expires)},
          {"uses", tensor.uses},
          {"evictable", tensor.evictable}};
}

int RunTensors(const Globals& globals, const TimeoutOption& timeout) {
  client::Client client(globals.server, OptionsOf(globals));
  const auto tensors = client.ListTensors(timeout.duration());
  if (!tensors.ok()) return Refused(tensors.status());
  if (globals.json) {
    json list = json::array();
    for (const client::TensorInfo& tensor : *tensors) list.push_back(ToJson(tensor));
    PrintJson({{"tensors", std::move(list)}});
    return kExitOk;
  }
  Table table = TensorsTable();
  for (const client::TensorInfo& tensor : *tensors) {
    std::string text = TensorText(tensor.spec.data_type, tensor.spec.shape);
    absl::StrAppend(&text, ", used ", tensor.uses, tensor.uses == 1 ? " time" : " times",
                    tensor.evictable ? ", evictable" : "", tensor.label.empty() ? "" : ": ",
                    tensor.label);
    table.AddRow({HandleText(tensor.handle), tensor.device, BytesText(tensor.bytes),
                  LeftText(tensor.expires), std::move(text)});
  }
  PrintText(table.ToString());
  return kExitOk;
}

}  // namespace

Command AddPutCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<PutArguments>(
      root.AddSubcommand("put",
                         "Put a tensor on a device to keep it there, and print its handle for "
                         "`run --input @HANDLE`"),
      globals, RunPut);
}

Command AddGetCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<GetArguments>(
      root.AddSubcommand("get", "Write a tensor kept on a device to a .npy file"), globals, RunGet);
}

Command AddFreeCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<FreeArguments>(
      root.AddSubcommand("free", "Free tensors kept on devices: exit status 1 if one is unknown"),
      globals, RunFree);
}

Command AddTensorsCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<TimeoutOption>(
      root.AddSubcommand("tensors", "List your tensors kept on devices, oldest first"), globals,
      RunTensors);
}

}  // namespace warpcall::cli
