// The one place that relies on something that gRPC's headers mark as internal.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/version_info.h>

namespace warpcall {

// A reactor whose OnDone and OnCancel run on gRPC's thread at hand. gRPC hands them to a thread of
// its own unless they are known not to block; waking that thread for each call took a tenth of the
// server's time. REQUIRES: they do not block.
//
// It was tried with gRPC 1.51 alone. With another a reactor is one like any other, which is right,
// and slower: the function has no promise behind it, and without it an override does not compile.
template <typename Reactor>
class InlineReactor : public Reactor {
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR == 51
 private:
  bool InternalInlineable() override { return true; }
#endif
};

}  // namespace warpcall
