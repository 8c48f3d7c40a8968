// Sends gRPC's own log lines to the server's log.
#pragma once

namespace warpcall {

// Sends the gRPC lines of the whole process through Log from now on. Errors become warnings, since
// most report a peer's fault, such as a client without TLS. Writes only a few lines a second; the
// next line gives the number left out.
void TakeGrpcLog();

}  // namespace warpcall
