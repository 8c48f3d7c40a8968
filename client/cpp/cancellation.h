#pragma once
#include <warpcall/call.h>  // Include this. client/cpp/cancellation.h ends with 1.0.
