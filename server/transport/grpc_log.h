// What gRPC has to say, as lines of the server's log.
#pragma once

namespace warpcall {

// From now on, of the whole process: gRPC's lines pass through Log, its errors as warnings, for
// most tell of what a peer did (one that speaks no TLS, say). No more than a few a second, whatever
// peers do; the next one says how many were left out.
void TakeGrpcLog();

}  // namespace warpcall
