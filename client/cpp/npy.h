#pragma once
#include <warpcall/npy.h>  // Include this. client/cpp/npy.h ends with 1.0.
