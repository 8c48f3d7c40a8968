#include "client/cpp/codec/values.h"

#include <memory>
#include <utility>
#include <variant>

namespace warpcall::client {
namespace {

void ToProto(const AttributeValue& value, v1::Attribute* attribute) {
  struct Setter {
    v1::Attribute* attribute;
    void operator()(bool v) const { attribute->set_bool_value(v); }
    void operator()(int64_t v) const { attribute->set_int_value(v); }
    void operator()(double v) const { attribute->set_double_value(v); }
    void operator()(const std::string& v) const { attribute->set_string_value(v); }
  };
  std::visit(Setter{attribute}, value);
}

}  // namespace

void ToProto(const AttributeMap& values, ProtoAttributeMap* attributes) {
  for (const auto& [name, value] : values) ToProto(value, &(*attributes)[name]);
}

AttributeValue FromProto(const v1::Attribute& attribute) {
  switch (attribute.value_case()) {
    case v1::Attribute::kBoolValue:
      return attribute.bool_value();
    case v1::Attribute::kIntValue:
      return static_cast<int64_t>(attribute.int_value());
    case v1::Attribute::kDoubleValue:
      return attribute.double_value();
    case v1::Attribute::kStringValue:
    case v1::Attribute::VALUE_NOT_SET:
      break;
  }
  return attribute.string_value();
}

LaunchInfo FromProto(const v1::LaunchInfo& launch) {
  return {.bytes_moved = launch.bytes_moved(),
          .flops = launch.flops(),
          .theoretical_occupancy = launch.theoretical_occupancy(),
          .waves = launch.waves(),
          .gpu_kernels = launch.gpu_kernels(),
          .variant = launch.variant()};
}

Timing FromProto(const v1::Timing& timing) {
  return {.queue_ns = timing.queue_ns(),
          .copy_in_ns = timing.copy_in_ns(),
          .h2d_ns = timing.h2d_ns(),
          .kernel_ns = timing.kernel_ns(),
          .d2h_ns = timing.d2h_ns(),
          .total_ns = timing.total_ns()};
}

Piece OwnedPiece(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  const absl::Span<const char> bytes(owner->data(), owner->size());
  return {bytes, std::move(owner)};
}

std::string Join(Fragments message) {
  std::string joined;
  for (const auto& fragment : message) joined.append(fragment.data(), fragment.size());
  return joined;
}

}  // namespace warpcall::client
