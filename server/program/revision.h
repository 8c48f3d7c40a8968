// The commit that this build's source is of. Not in version.h: another revision compiles one file.
#pragma once

namespace warpcall {

// "b95476e1a2b3", "b95476e1a2b3-dirty" where files differ from it; empty where it was no checkout.
extern const char kRevision[];

}  // namespace warpcall
