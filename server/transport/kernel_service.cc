#include "server/transport/kernel_service.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "server/inspect/describe.h"
#include "server/transport/background_thread.h"
#include "server/transport/call.h"
#include "server/transport/codec.h"
#include "server/transport/execute_stream_call.h"
#include "server/transport/get_call.h"
#include "server/transport/graph_codec.h"
#include "server/transport/inflater.h"
#include "server/transport/inquiry.h"
#include "server/transport/inspect_call.h"
#include "server/transport/inspect_stream_call.h"
#include "server/transport/put_call.h"
#include "server/transport/reply.h"

namespace warpcall {
namespace {

std::string SummaryOf(const Row& row) {
  std::vector<std::string> types;
  for (const DataType type : row.implementation.data_types)
    if (Registry::WhyNotAuto(row, type) != nullptr) types.push_back(DataTypeName(type));
  if (types.empty()) return row.implementation.summary;
  return absl::StrCat(row.implementation.summary, "; auto never runs it for ",
                      absl::StrJoin(types, ", "));
}

// The rows of `first`'s family for its kind of device.
std::vector<const Row*> VariantsOf(const Registry& registry, const Kernel& kernel,
                                   const Row& first) {
  std::vector<const Row*> rows;
  for (const int id : kernel.rows) {
    const Row& row = registry.rows()[static_cast<size_t>(id)];
    if (row.implementation.family == first.implementation.family &&
        row.implementation.device_kind == first.implementation.device_kind)
      rows.push_back(&row);
  }
  return rows;
}

void AddVariants(absl::Span<const Row* const> rows, v1::ImplementationInfo* info) {
  std::vector<std::string> summaries;
  std::vector<std::string> missing;
  for (const Row* const row : rows) {
    const std::string name = rows.size() == 1 ? "" : absl::StrCat(row->implementation.name, ": ");
    info->add_variants(row->implementation.name);
    summaries.push_back(absl::StrCat(name, SummaryOf(*row)));
    for (const DataType type : row->implementation.data_types)
      if (!absl::c_linear_search(info->data_types(), static_cast<int>(type)))
        info->add_data_types(static_cast<v1::DataType>(type));
    const Unavailability* const why_not = row->availability.why_not();
    if (why_not == nullptr) continue;
    missing.push_back(absl::StrCat(name, why_not->reason));
    if (rows.size() > 1)
      absl::StrAppend(&summaries.back(), " (unavailable: ", why_not->reason, ")");
  }
  info->set_summary(absl::StrJoin(summaries, "; "));
  if (missing.size() == rows.size()) info->set_unavailable(absl::StrJoin(missing, "; "));
}

void FillIn(const Registry& registry, const Kernel& kernel, v1::KernelInfo* info) {
  info->set_name(kernel.op->name);
  info->set_summary(kernel.op->summary);
  info->set_independence(static_cast<v1::Independence>(kernel.op->independence));
  for (const char* name : kernel.op->input_names) info->add_input_names(name);
  for (const OperandRole role : kernel.op->input_roles)
    info->add_input_roles(static_cast<v1::OperandRole>(role));
  info->set_inputs_min(static_cast<int32_t>(kernel.op->inputs_min));
  for (const AttributeSpec& spec : kernel.op->attributes) {
    v1::AttributeInfo* attribute = info->add_attributes();
    attribute->set_name(spec.name);
    attribute->set_summary(spec.summary);
    *attribute->mutable_default_value() = inspect::ToProto(spec.default_value);
    for (const std::string& value : spec.allowed_values) attribute->add_allowed_values(value);
    attribute->set_required(spec.required);
  }
  for (const int id : kernel.rows) {
    const Row& row = registry.rows()[static_cast<size_t>(id)];
    const char* const kind = DeviceKindName(row.implementation.device_kind);
    const char* const name = FamilyName(row.implementation.family);
    const auto known = absl::c_find_if(info->implementations(), [&](const auto& entry) {
      return entry.name() == name && entry.device_kind() == kind;
    });
    if (known != info->implementations().end()) continue;
    v1::ImplementationInfo* entry = info->add_implementations();
    entry->set_name(name);
    entry->set_family(name);
    entry->set_device_kind(kind);
    AddVariants(VariantsOf(registry, kernel, row), entry);
  }
}

void FillIn(const Engine& engine, int index, v1::DeviceInfo* info) {
  const Device& device = engine.device(index);
  const DeviceProperties& properties = device.properties();
  info->set_name(properties.name);
  info->set_kind(DeviceKindName(properties.kind));
  info->set_description(properties.description);
  info->set_memory_bytes(properties.memory_bytes);
  info->set_multiprocessors(properties.multiprocessors);
  info->set_l2_bytes(properties.l2_bytes);
  info->set_shared_memory_per_block_bytes(properties.shared_memory_per_block_bytes);
  info->set_compute_capability(properties.compute_capability);
  info->set_healthy(device.healthy());
  info->set_measured_bandwidth_bytes_per_second(engine.bandwidth(index).bytes_per_second);
}

void FillIn(const ServerFacts& facts, v1::ServerInfoResponse* response) {
  response->set_version(facts.version);
  response->set_revision(facts.revision);
  response->set_grpc_version(grpc::Version());
  response->set_started_unix_ns(facts.started_unix_ns);
  response->mutable_changed_flags()->insert(facts.changed_flags.begin(), facts.changed_flags.end());
  response->set_hostname(facts.hostname);
}

v1::TensorInfo ToProto(const Residents::Listed& listed, const Engine& engine) {
  v1::TensorInfo info;
  info.set_handle(listed.handle);
  info.set_label(listed.label);
  info.set_device(engine.device(listed.device).properties().name);
  info.set_data_type(static_cast<v1::DataType>(listed.spec.data_type));
  info.mutable_shape()->Assign(listed.spec.dims.begin(), listed.spec.dims.end());
  info.set_bytes(static_cast<int64_t>(listed.spec.bytes()));
  info.set_created_unix_ns(listed.created_unix_ns);
  info.set_expires_unix_ns(listed.expires_unix_ns);
  info.set_uses(listed.uses);
  info.set_evictable(listed.evictable);
  return info;
}

// Answers ListTensors. The list may have megabytes: it is made off gRPC's threads, and counts as
// the caller's memory until it was sent.
absl::Status ListTo(const ExecuteDeps& deps, const Unary& unary) {
  return AnswerTo<v1::ListTensorsRequest>(
      deps, unary, "ListTensors", [&](const Principal& caller, const auto&) {
        v1::ListTensorsResponse list;
        for (const Residents::Listed& listed : deps.engine->residents().List(caller.name))
          *list.add_tensors() = ToProto(listed, *deps.engine);
        return deps.parts.inflater->Charge(caller.id, list.SerializeAsString(), unary.response);
      });
}

}  // namespace

KernelService::Reactor* KernelService::Execute(Context* context, const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  return UnaryCall::Start(deps_, {context, request, response}, std::make_unique<ExecuteCodec>());
}

KernelService::Reactor* KernelService::ExecuteGraph(Context* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return UnaryCall::Start(deps_, {context, request, response},
                          std::make_unique<GraphCodec>(deps_->registry, &deps_->graphs));
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* KernelService::ExecuteStream(
    Context* context) {
  return new ExecuteStreamCall(deps_, context);
}

KernelService::Reactor* KernelService::ListKernels(Context* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return Reply<v1::ListKernelsRequest, v1::ListKernelsResponse>(
      *deps_, {context, request, response}, "ListKernels",
      [&](const auto& question, v1::ListKernelsResponse* answer) {
        for (const Kernel& kernel : deps_->registry->kernels())
          if (kernel.is_named()) FillIn(*deps_->registry, kernel, answer->add_kernels());
        if (question.with_tuned()) AddTuned(*deps_, answer);
        return absl::OkStatus();
      });
}

KernelService::Reactor* KernelService::ListDevices(Context* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return Reply<v1::ListDevicesRequest, v1::ListDevicesResponse>(
      *deps_, {context, request, response}, "ListDevices",
      [&](const auto&, v1::ListDevicesResponse* answer) {
        for (int i = 0; i < deps_->engine->device_count(); ++i)
          FillIn(*deps_->engine, i, answer->add_devices());
        return absl::OkStatus();
      });
}

KernelService::Reactor* KernelService::ServerInfo(Context* context, const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return Reply<v1::ServerInfoRequest, v1::ServerInfoResponse>(
      *deps_, {context, request, response}, "ServerInfo",
      [&](const auto&, v1::ServerInfoResponse* answer) {
        FillIn(deps_->facts, answer);
        return absl::OkStatus();
      });
}

KernelService::Reactor* KernelService::Benchmark(Context* context, const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return UnaryInspectCall::Start(deps_, Inspection::kBenchmark, {context, request, response});
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* KernelService::BenchmarkStream(
    Context* context, const grpc::ByteBuffer* request) {
  return InspectStreamCall::Start(deps_, Inspection::kBenchmark, context, request);
}

KernelService::Reactor* KernelService::Tune(Context* context, const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return UnaryInspectCall::Start(deps_, Inspection::kTune, {context, request, response});
}

KernelService::Reactor* KernelService::Profile(Context* context, const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  return UnaryInspectCall::Start(deps_, Inspection::kProfile, {context, request, response});
}

KernelService::Reactor* KernelService::Describe(Context* context, const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return UnaryInspectCall::Start(deps_, Inspection::kDescribe, {context, request, response});
}

grpc::ServerReadReactor<grpc::ByteBuffer>* KernelService::Put(Context* context,
                                                              grpc::ByteBuffer* response) {
  return new PutCall(deps_, context, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* KernelService::Get(Context* context,
                                                               const grpc::ByteBuffer* request) {
  return new GetCall(deps_, context, request);
}

KernelService::Reactor* KernelService::Free(Context* context, const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return ReplyTo<v1::FreeRequest, v1::FreeResponse>(
      *deps_, {context, request, response}, "Free",
      [&](const Principal& caller, const v1::FreeRequest& question, v1::FreeResponse* answer) {
        const std::vector<absl::string_view> handles(question.handles().begin(),
                                                     question.handles().end());
        const Residents::Freed freed = deps_->engine->residents().Free(caller.name, handles);
        answer->set_bytes(freed.bytes);
        for (const std::string& handle : freed.unknown) answer->add_unknown(handle);
        return absl::OkStatus();
      });
}

KernelService::Reactor* KernelService::ListTensors(Context* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  const Unary unary = {context, request, response};
  auto* const reactor = new WatchedUnary(*deps_, unary);
  deps_->parts.background->Add([deps = deps_, unary, reactor] {
    reactor->Finish(EndOf(ListTo(*deps, unary), unary.context));
  });
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* KernelService::Push(Context* context,
                                                                const grpc::ByteBuffer* request) {
  return InspectStreamCall::Start(deps_, Inspection::kPush, context, request);
}

}  // namespace warpcall
