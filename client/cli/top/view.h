// The text of `warpcall top`: a snapshot of a server, as lines for a screen.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "client/cli/common/screen.h"
#include "client/cli/top/metrics_port.h"

namespace warpcall::cli {

// How the reader wants the kernels.
struct TopView {
  size_t sort_column = 1;   // REQ/S
  std::string filter = {};  // only kernels whose names contain it, whatever their case; empty: all
  bool is_typing = false;   // the filter
  bool is_paused = false;
};

// Columns of the kernels, each of which may be sorted by: names from A on, figures from the largest
// on.
size_t TopColumns();

// Header, devices, kernels and inspections. No line is wider than `screen`.
std::string TopText(const TopStatus& status, const TopView& view, const Screen& screen);

// The bottom line of a live screen: its keys, or the filter that is being typed.
std::string TopKeys(const TopView& view);

}  // namespace warpcall::cli
