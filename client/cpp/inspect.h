#pragma once
#include <warpcall/inspect.h>  // Include this. client/cpp/inspect.h ends with 1.0.
