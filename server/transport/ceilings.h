// What each device could do at best, for everyone who wants to compare.
#pragma once

#include "server/engine/engine.h"
#include "server/inspect/inspector.h"

namespace warpcall {

// Has every device's copy bandwidth measured, one after the other, some seconds from now; `engine`,
// which outlives `inspector`, is told.
void MeasureCeilings(Engine* engine, inspect::Inspector* inspector);

}  // namespace warpcall
