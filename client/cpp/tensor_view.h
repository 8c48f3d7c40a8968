#pragma once
#include <warpcall/tensor.h>  // Include this. client/cpp/tensor_view.h ends with 1.0.
