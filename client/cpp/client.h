#pragma once
#include <warpcall/client.h>  // Include this. client/cpp/client.h ends with 1.0.
