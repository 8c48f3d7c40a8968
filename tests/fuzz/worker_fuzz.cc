// The first byte chooses a side of a worker's sockets and mailboxes; the rest is that side's input:
// messages with changed bytes, or any bytes.
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/worker/link.h"
#include "server/worker/protocol.h"
#include "tests/fuzz/edited.h"
#include "tests/fuzz/targets.h"
#include "tests/server/worker/hostile_server.h"

namespace warpcall::testing {
namespace {

using worker::Hello;
using worker::RunReply;
using worker::RunRequest;
using worker::WireStatus;

constexpr size_t kTensorBytes = 16 << 10;

std::string CheckHello(FuzzInput* decisions) {
  DeviceProperties good;
  good.name = "cuda:0";
  good.kind = DeviceKind::kCuda;
  good.description = "a device";
  good.memory_bytes = 1 << 30;
  const Hello hello = Edited(worker::ToWire(good), decisions);
  const absl::StatusOr<DeviceProperties> read = worker::FromWire(hello);
  if (!read.ok()) return absl::IsInternal(read.status()) ? "" : read.status().ToString();
  if (read->name.size() > sizeof(hello.name) ||
      read->description.size() > sizeof(hello.description) || read->memory_bytes < 0 ||
      read->multiprocessors < 0 || read->ordinal < 0)
    return "a device that cannot be";
  const std::string device_kind = DeviceKindName(read->kind);
  return device_kind == "cpu" || device_kind == "cuda" ? "" : absl::StrCat("kind ", device_kind);
}

std::string CheckStatus(FuzzInput* decisions) {
  const absl::Status good = absl::UnavailableError("the device was lost");
  const WireStatus wire = Edited(worker::ToWire(good), decisions);
  const absl::Status read = worker::FromWire(wire);
  if (read.message().size() > sizeof(wire.message)) return "a message longer than its room";
  return absl::StatusCodeToString(read.code()).empty() ? "a code that there is not" : "";
}

// Checks how a worker reads a server's request, without running it. Tensor 7 stays there.
std::string CheckRequest(FuzzInput* decisions) {
  alignas(kOperandAlignmentBytes) static char staging[kStagingBytes];
  alignas(kOperandAlignmentBytes) static char tensor[kTensorBytes];
  static const std::shared_ptr<ResidentMemory> resident = [] {
    auto memory = std::make_shared<ResidentMemory>(kTensorBytes);
    memory
        ->Allocate([](size_t bytes) {
          return absl::StatusOr<Buffer>(Buffer(
              tensor, bytes, [](void*, void*, size_t) {}, nullptr));
        })
        .IgnoreError();
    return memory;
  }();
  const RunRequest request = Edited(GoodRunRequest(), decisions);
  if (request.row == worker::kAllocateRow) {
    const absl::StatusOr<worker::Allocation> wanted = worker::AllocationOf(request);
    return wanted.ok() && wanted->bytes == 0 ? "a tensor of no bytes" : "";
  }
  if (request.row == worker::kGraphRow) {
    worker::GraphShelf shelf;
    shelf.Add(request, CpuKernels()).IgnoreError();
    return "";
  }
  const absl::StatusOr<const Row*> row = worker::RowOf(request, CpuKernels());
  if (!row.ok()) return "";
  const Op& op = *CpuKernels().kernels()[static_cast<size_t>((*row)->kernel)].op;
  const absl::StatusOr<Problem> problem = worker::ProblemOf(request, op);
  if (!problem.ok()) return "";
  const auto placed =
      worker::OperandsOf(request, *problem, absl::MakeSpan(staging),
                         [&](uint64_t number) { return number == 7 ? resident : nullptr; });
  if (!placed.ok()) return "";
  size_t i = 0;
  std::string fault;
  const auto check = [&](const TensorSpec& spec) {
    const bool stays = !placed->residents.empty() && placed->residents[i].content != nullptr;
    const char* const data = stays ? placed->residents[i].data() : placed->staging[i].data;
    const char* const room = stays ? tensor : staging;
    const size_t room_bytes = stays ? kTensorBytes : kStagingBytes;
    if (placed->staging[i].bytes != (stays ? 0 : spec.bytes()) || data < room ||
        data + spec.bytes() > room + room_bytes ||
        (data - room) % static_cast<ptrdiff_t>(kOperandAlignmentBytes) != 0)
      fault = absl::StrCat("operand ", i, " lies outside its memory, or askew");
    ++i;
  };
  if (placed->staging.size() != problem->inputs.size() + problem->outputs.size())
    return "operands are missing";
  for (const TensorSpec& spec : problem->inputs) check(spec);
  for (const TensorSpec& spec : problem->outputs) check(spec);
  return fault;
}

bool IsSound(const RunReply& reply) {
  const auto& compiled = reply.compile_counts;
  return *std::min_element(compiled.fields.begin(), compiled.fields.end()) >= 0 &&
         *std::min_element(compiled.compilations.begin(), compiled.compilations.end()) >= 0 &&
         static_cast<int>(reply.reject_reason) < kRejectReasonCount && reply.kernel_ns >= 0 &&
         reply.device_ns >= 0 && reply.memory.used_bytes >= 0 && reply.launch.gpu_kernels >= 0 &&
         std::isfinite(reply.launch.waves) && reply.pushback_ms >= -1;
}

// A server's lane whose worker put a reply into the mailbox, perhaps rang, and is gone.
std::string CheckReply(FuzzInput* decisions) {
  auto control = process::MakeSockets(SOCK_STREAM);
  auto lane = process::MakeSockets(SOCK_SEQPACKET);
  if (!control.ok() || !lane.ok()) return "no sockets";
  const int file = memfd_create("mail", MFD_CLOEXEC);
  const auto mail = worker::MappedMail::Map(file, 1);
  worker::LinkEnds ends;
  ends.child = std::make_unique<process::Child>(process::Channel(std::move(control->first)));
  ends.mail = Descriptor(file);
  ends.lanes.push_back(std::move(lane->first));
  auto link = worker::Link::Open(std::move(ends), 0);
  if (!mail.ok() || !link.ok()) return "no mail";
  RunReply good = {};
  good.healthy = 1;
  const RunReply sent = Edited(good, decisions);
  worker::Mailbox<RunReply>& box = mail->lane(0).replies;
  box.message = sent;
  const uint8_t signals = decisions->Byte();
  box.signal.messages.store(signals % 4 == 0 ? 1 : static_cast<uint32_t>(decisions->Number(4)));
  box.signal.reader_sleeps.store(signals / 4 % 4);
  const absl::string_view bell = decisions->Take(signals / 16);
  if (!bell.empty()) send(lane->second.get(), bell.data(), bell.size(), MSG_NOSIGNAL);
  control->second = Descriptor();
  lane->second = Descriptor();
  RunReply read;
  if (const absl::Status status = (*link)->Run(0, GoodRunRequest(), nullptr, &read); !status.ok())
    return absl::IsUnavailable(status) ? "" : status.ToString();
  const int steps = std::clamp(sent.step_count, 0, kGraphStepsMax);
  if (std::memcmp(static_cast<const worker::RunFacts*>(&read),
                  static_cast<const worker::RunFacts*>(&sent), sizeof(worker::RunFacts)) != 0 ||
      std::memcmp(read.steps, sent.steps, sizeof(sent.steps[0]) * static_cast<size_t>(steps)) != 0)
    return "another reply than was sent";
  return worker::CheckReply(read).ok() && !IsSound(read) ? "a reply of nonsense is taken" : "";
}

// Messages of any length where one of a struct is awaited.
std::string CheckLengths(FuzzInput* decisions) {
  auto sockets = process::MakeSockets(SOCK_STREAM);
  if (!sockets.ok()) return "no sockets";
  const process::Channel near(std::move(sockets->first));
  const size_t bytes = decisions->Number(2) % (2 * sizeof(Hello));
  std::string body(decisions->Rest());
  body.resize(bytes);
  process::Channel(std::move(sockets->second)).Send("", body).IgnoreError();
  const absl::StatusOr<Hello> read = near.ReceiveStruct<Hello>();
  return read.ok() == (bytes == sizeof(Hello))
             ? ""
             : absl::StrCat(bytes, " bytes: ", read.status().ToString());
}

// A worker at work, which must answer, and then a right request rightly.
std::string CheckWorker(FuzzInput* decisions) {
  static HostileServer* const server = [] {
    auto* const created = new HostileServer;
    return created->ShareStaging(kStagingBytes).ok() ? created : nullptr;
  }();
  if (server == nullptr) return "the worker takes no staging";
  for (int i = 0; i < 8 && !decisions->empty(); ++i)
    server->Run(Edited(GoodRunRequest(), decisions)).IgnoreError();
  server->Free(decisions->empty() ? 7 : decisions->Number(8));
  const absl::Status status = server->Run(GoodRunRequest());
  return status.ok() ? "" : absl::StrCat("a right request afterwards: ", status.ToString());
}

}  // namespace

std::string FuzzWorker(absl::string_view input) {
  FuzzInput decisions(input);
  switch (decisions.Byte() % 6) {
    case 0:
      return CheckHello(&decisions);
    case 1:
      return CheckStatus(&decisions);
    case 2:
      return CheckRequest(&decisions);
    case 3:
      return CheckReply(&decisions);
    case 4:
      return CheckLengths(&decisions);
    default:
      return CheckWorker(&decisions);
  }
}

}  // namespace warpcall::testing
