#include "server/transport/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "server/transport/grpc_1_51/handover.h"
#include "server/transport/reply.h"
#include "server/transport/watched_reactors.h"

namespace warpcall {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

const DescriptorPool& Pool() { return *DescriptorPool::generated_pool(); }

// Adds `file`, and every file that it imports.
void AddFile(const FileDescriptor& file, std::set<const FileDescriptor*>* added,
             grpc::reflection::v1::FileDescriptorResponse* response) {
  if (!added->insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), added, response);
}

// `name`: what was asked for.
absl::Status AnswerFile(const FileDescriptor* file, absl::string_view name,
                        ServerReflectionResponse* response) {
  if (file == nullptr) return absl::NotFoundError(absl::StrCat("unknown name '", name, "'"));
  std::set<const FileDescriptor*> added;
  AddFile(*file, &added, response->mutable_file_descriptor_response());
  return absl::OkStatus();
}

absl::Status AnswerExtension(const grpc::reflection::v1::ExtensionRequest& request,
                             ServerReflectionResponse* response) {
  const Descriptor* const type = Pool().FindMessageTypeByName(request.containing_type());
  const FieldDescriptor* const extension =
      type == nullptr ? nullptr : Pool().FindExtensionByNumber(type, request.extension_number());
  return AnswerFile(
      extension == nullptr ? nullptr : extension->file(),
      absl::StrCat(request.containing_type(), " extension ", request.extension_number()), response);
}

absl::Status AnswerExtensionNumbers(const std::string& type_name,
                                    ServerReflectionResponse* response) {
  const Descriptor* const type = Pool().FindMessageTypeByName(type_name);
  if (type == nullptr)
    return absl::NotFoundError(absl::StrCat("unknown message type '", type_name, "'"));
  auto* const numbers = response->mutable_all_extension_numbers_response();
  numbers->set_base_type_name(type_name);
  std::vector<const FieldDescriptor*> extensions;
  Pool().FindAllExtensions(type, &extensions);
  for (const FieldDescriptor* const extension : extensions)
    numbers->add_extension_number(extension->number());
  return absl::OkStatus();
}

absl::Status Answer(const ServerReflectionRequest& request,
                    const std::vector<std::string>& services, ServerReflectionResponse* response) {
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      return AnswerFile(Pool().FindFileByName(request.file_by_filename()),
                        request.file_by_filename(), response);
    case ServerReflectionRequest::kFileContainingSymbol:
      return AnswerFile(Pool().FindFileContainingSymbol(request.file_containing_symbol()),
                        request.file_containing_symbol(), response);
    case ServerReflectionRequest::kFileContainingExtension:
      return AnswerExtension(request.file_containing_extension(), response);
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      return AnswerExtensionNumbers(request.all_extension_numbers_of_type(), response);
    case ServerReflectionRequest::kListServices:
      response->mutable_list_services_response();
      for (const std::string& service : services)
        response->mutable_list_services_response()->add_service()->set_name(service);
      return absl::OkStatus();
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  return absl::UnimplementedError("the request asks for nothing that is known here");
}

// One stream: a request is read when the answer to the one before has been sent. Owned by gRPC:
// deletes itself when the call is over.
class ReflectionCall final : public WatchedBidi {
 public:
  ReflectionCall(const ExecuteDeps* deps, const std::vector<std::string>* services,
                 grpc::CallbackServerContext* context)
      : WatchedBidi(*deps, context), deps_(deps), services_(services), context_(context) {
    StartRead(&message_);
    handover_.Give();
  }

  void OnReadDone(bool ok) override {
    handover_.Take();
    if (!ok) return Finish(grpc::Status::OK);
    ServerReflectionRequest request;
    if (absl::Status status = ParseSmallMessage(*deps_, &message_, &request); !status.ok())
      return Finish(EndOf(status, context_));
    ServerReflectionResponse response;
    response.set_valid_host(request.host());
    *response.mutable_original_request() = request;
    if (absl::Status status = Answer(request, *services_, &response); !status.ok()) {
      response.mutable_error_response()->set_error_code(status.raw_code());
      response.mutable_error_response()->set_error_message(std::string(status.message()));
    }
    message_ = ToByteBuffer(response);
    StartWrite(&message_);
  }

  void OnWritten(bool ok) override {
    handover_.Take();
    if (!ok) return Finish(grpc::Status::CANCELLED);
    message_.Clear();
    StartRead(&message_);
  }

  void OnOver() override {
    handover_.Take();
    delete this;
  }

 private:
  const ExecuteDeps* const deps_;
  const std::vector<std::string>* const services_;
  grpc::CallbackServerContext* const context_;
  Handover handover_;
  grpc::ByteBuffer message_;  // read, or sent
};

}  // namespace

ReflectionReactor* StartReflectionCall(const ExecuteDeps* deps,
                                       const std::vector<std::string>* services,
                                       grpc::CallbackServerContext* context) {
  return new ReflectionCall(deps, services, context);
}

}  // namespace warpcall
