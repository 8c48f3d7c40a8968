// Messages in which every field is set, also those that are yet to be added.
#pragma once

#include <google/protobuf/message.h>

namespace warpcall::testing {

// Sets every field of `message` and of the messages in it, to values other than the default; of a
// oneof the last.
void SetEveryField(google::protobuf::Message* message);

}  // namespace warpcall::testing
