// Contenders of the transport benchmark, and the points to compare them at.
#pragma once

#include <cstddef>
#include <string>

namespace warpcall::bench {

enum class Transport : int { kTcp, kUnix };

constexpr const char* TransportName(Transport transport) {
  return transport == Transport::kTcp ? "TCP" : "Unix";
}

enum class ContenderKind : int {
  kEcho,          // a ByteBuffer, sent back: gRPC and nothing else, read in warpcalld's chunks
  kEchoDefaults,  // kEcho with gRPC's own channel arguments
  kProtobuf,      // a `bytes` field, sent back by a service of generated code
  kRaw,           // warpcalld, called with ByteBuffers
  kInfer,         // warpcalld, called by the Open Inference Protocol
  kPeer,          // a server of somebody else's, called by the very same ModelInfer
  kPeerStub,      // kPeer, called as NVIDIA Triton's clients call: generated code, defaults
  kLibrary,       // warpcalld, called through the client library
};

struct Contender {
  ContenderKind kind = ContenderKind::kEcho;
  std::string kernel = {};  // for contenders that are warpcalld

  friend bool operator==(const Contender&, const Contender&) = default;
};

inline std::string ContenderName(const Contender& contender) {
  switch (contender.kind) {
    case ContenderKind::kEcho:
      return "ByteBuffer echo";
    case ContenderKind::kEchoDefaults:
      return "ByteBuffer echo (defaults)";
    case ContenderKind::kProtobuf:
      return "protobuf bytes echo";
    case ContenderKind::kRaw:
      return "warpcall " + contender.kernel;
    case ContenderKind::kInfer:
      return "warpcall " + contender.kernel + " (ModelInfer)";
    case ContenderKind::kPeer:
      return "peer " + contender.kernel + " (ModelInfer)";
    case ContenderKind::kPeerStub:
      return "peer " + contender.kernel + " (ModelInfer, generated code)";
    case ContenderKind::kLibrary:
      return "warpcall " + contender.kernel + " (client library)";
  }
  return "unknown";
}

constexpr bool IsModelInfer(ContenderKind kind) {
  return kind == ContenderKind::kInfer || kind == ContenderKind::kPeer;
}

constexpr bool IsPeer(ContenderKind kind) {
  return kind == ContenderKind::kPeer || kind == ContenderKind::kPeerStub;
}

constexpr bool IsEcho(ContenderKind kind) {
  return kind == ContenderKind::kEcho || kind == ContenderKind::kEchoDefaults;
}

// Load of a comparison: `connections` closed loops of requests with `bytes` of tensor data.
struct Point {
  Transport transport = Transport::kTcp;
  int connections = 1;
  size_t bytes = 0;

  friend bool operator==(const Point&, const Point&) = default;
};

}  // namespace warpcall::bench
