#pragma once
#include <warpcall/client.h>  // Include this. client/cpp/credentials.h ends with 1.0.
