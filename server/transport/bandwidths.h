// Measures what each device's memory can do at best, which rates are compared with.
#pragma once

#include "server/engine/engine.h"
#include "server/inspect/inspector.h"

namespace warpcall {

// Has every device's copy bandwidth measured, one after the other, each when it has been quiet for
// two seconds, or after half a minute; and measured again, a minute later and then less and less
// often, while it is quiet and no two readings agree. Gives the readings to `engine`, which
// outlives `inspector`.
void MeasureBandwidths(Engine* engine, inspect::Inspector* inspector, const Clock& clock);

}  // namespace warpcall
