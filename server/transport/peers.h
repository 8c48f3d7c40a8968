// Names the client at the other end of a connection.
#pragma once

#include <string>

namespace warpcall {

// Returns the user of a client on this machine ("uid 1000"), otherwise the client's IPv4 address or
// the /64 network of its IPv6 address, as one machine has all addresses of such a network. Returns
// "loopback" for a client on loopback whose user the kernel does not tell, and "" where the peer
// has gone.
std::string SourceOf(int socket);

// Returns the name that gRPC gives the connection in ServerContext::peer: "ipv4:127.0.0.1:40000",
// "ipv6:%5B::1%5D:40000", or "fd:37" for a Unix socket that gRPC serves by its descriptor. Returns
// "" where the peer has gone.
std::string PeerNameOf(int socket);

bool IsUnixSocket(int socket);

}  // namespace warpcall
