// Common part of SplitTensors and its like: splits messages by tables of the fields that hold
// tensor data. Internal to this folder, and to its tests.
#pragma once

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/wire/tensor_split.h"

namespace warpcall::wire {

struct MessageRule;

// One field that holds tensor data, or messages that do.
struct FieldRule {
  enum class Kind : uint8_t {
    kTensors,    // a `repeated` message: one tensor each
    kMessage,    // a message; given several times it is merged, as protobuf does
    kBytes,      // `bytes`, the data of the tensor; the last one counts
    kEachBytes,  // `repeated bytes`, each the data of some tensor
    kFloats,     // `repeated float`, whose encoding is the data; all values, in order
  };

  uint32_t number;
  Kind kind;
  const MessageRule* message = nullptr;  // for kTensors and kMessage
};

// The fields of a message that do not stay in the header as they are.
struct MessageRule {
  const google::protobuf::Descriptor* (*descriptor)();
  // The highest number of its fields: length-delimited fields above it are unknown, so their
  // content is skipped. Taken from the descriptor, so that fields added there come through.
  uint32_t (*number_max)();
  absl::Span<const FieldRule> fields;
};

template <typename Message>
constexpr MessageRule RuleOf(absl::Span<const FieldRule> fields) {
  return {[] { return Message::descriptor(); },
          [] {
            static const int number_max = [] {
              const google::protobuf::Descriptor& descriptor = *Message::descriptor();
              int highest = 0;
              for (int i = 0; i < descriptor.field_count(); ++i)
                highest = std::max(highest, descriptor.field(i)->number());
              return highest;
            }();
            return static_cast<uint32_t>(number_max);
          },
          fields};
}

// Depth of the messages that rules may name, the outermost included.
inline constexpr int kRuleDepthMax = 3;

extern const MessageRule kExecuteRequestRule;
extern const MessageRule kExecuteResponseRule;
extern const MessageRule kExecuteGraphRequestRule;
extern const MessageRule kExecuteGraphResponseRule;
extern const MessageRule kPutHeaderRule;
extern const MessageRule kModelInferRequestRule;

// Returns the first field of the rule that differs in its message's descriptor, or "".
std::string FindMisfit(const MessageRule& rule, int depth = 1);

// Splits a message by its rule, like SplitTensors. `data` gets the data that belong to no element
// of a repeated field; null: the rule has none. REQUIRES: the rule fits its descriptor.
absl::Status Split(absl::Span<const Bytes> fragments, const MessageRule& rule, SplitMessage* split,
                   FragmentedBytes* data = nullptr);

}  // namespace warpcall::wire
