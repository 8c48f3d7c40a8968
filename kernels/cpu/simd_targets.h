// Include before hwy/highway.h in files with runtime dispatch. Keeps AVX-512, AVX2 and the
// baseline: what lies between adds compile time and no machine that this runs on, and nothing here
// uses AVX3_DL's instructions.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSE4 | HWY_SSSE3)
