#include "tests/proto/every_field.h"

#include <google/protobuf/descriptor.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace warpcall::testing {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void SetOne(const FieldDescriptor& field, Message* message) {
  const google::protobuf::Reflection& fields = *message->GetReflection();
  const bool repeated = field.is_repeated();
  const auto set = [&](auto add, auto set_one, const auto& value) {
    if (repeated)
      (fields.*add)(message, &field, value);
    else
      (fields.*set_one)(message, &field, value);
  };
  using Fields = google::protobuf::Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return set(&Fields::AddInt32, &Fields::SetInt32, field.number());
    case FieldDescriptor::CPPTYPE_INT64:
      return set(&Fields::AddInt64, &Fields::SetInt64, field.number());
    case FieldDescriptor::CPPTYPE_UINT32:
      return set(&Fields::AddUInt32, &Fields::SetUInt32, field.number());
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(&Fields::AddUInt64, &Fields::SetUInt64, field.number());
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set(&Fields::AddDouble, &Fields::SetDouble, 0.5);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return set(&Fields::AddFloat, &Fields::SetFloat, 0.5f);
    case FieldDescriptor::CPPTYPE_BOOL:
      return set(&Fields::AddBool, &Fields::SetBool, true);
    case FieldDescriptor::CPPTYPE_ENUM:
      return set(&Fields::AddEnum, &Fields::SetEnum, field.enum_type()->value(1));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = absl::StrCat(field.name(), " ", field.number());
      if (repeated) return fields.AddString(message, &field, text);
      return fields.SetString(message, &field, text);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return SetEveryField(repeated ? fields.AddMessage(message, &field)
                                    : fields.MutableMessage(message, &field));
  }
}

}  // namespace

void SetEveryField(Message* message) {
  const google::protobuf::Descriptor& descriptor = *message->GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) SetOne(*descriptor.field(i), message);
}

}  // namespace warpcall::testing
