#pragma once
#include <warpcall/tensor.h>  // Include this. client/cpp/tensor.h ends with 1.0.
