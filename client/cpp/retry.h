#pragma once
#include <warpcall/client.h>  // Include this. client/cpp/retry.h ends with 1.0.
