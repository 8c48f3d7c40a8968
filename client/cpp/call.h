#pragma once
#include <warpcall/call.h>  // Include this. client/cpp/call.h ends with 1.0.
