// Values that several messages of the protocol carry. Internal to the library.
#pragma once

#include <map>
#include <string>

#include "client/cpp/codec/codec.h"
#include "client/cpp/rpc/channel.h"
#include "warpcall/call.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::client {

using AttributeMap = std::map<std::string, AttributeValue>;
using ProtoAttributeMap = google::protobuf::Map<std::string, v1::Attribute>;

void ToProto(const AttributeMap& values, ProtoAttributeMap* attributes);
AttributeValue FromProto(const v1::Attribute& attribute);
LaunchInfo FromProto(const v1::LaunchInfo& launch);
Timing FromProto(const v1::Timing& timing);

// A piece that holds `text` itself.
Piece OwnedPiece(std::string text);
// For messages without tensors: all their bytes.
std::string Join(Fragments message);

}  // namespace warpcall::client
