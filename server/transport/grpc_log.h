// Sends gRPC's own log lines to the server's log.
#pragma once

#include <cstdint>

namespace warpcall {

// Sends the gRPC lines of the whole process through Log from now on. Errors become warnings, since
// most report a peer's fault, such as a client without TLS. Writes only a few lines a second; the
// next line gives the number left out.
void TakeGrpcLog();

// Returns the number of TLS handshakes that failed since TakeGrpcLog because the client showed no
// certificate or one of a foreign authority, counted by their lines, whether written or left out.
int64_t ClientCertificatesRefused();

}  // namespace warpcall
