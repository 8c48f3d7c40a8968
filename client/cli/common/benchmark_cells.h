// Cells of tables that compare measured implementations.
#pragma once

#include <string>

#include "warpcall/client.h"

namespace warpcall::cli {

// The implementation and its variant, cut so that a table fits 100 columns.
std::string NameCell(const client::BenchmarkResult& result);
// "45%"; "-" for what is not above 0.
std::string ShareCell(double share);
// "4.10 G"; the heading has the unit.
std::string RateCell(double per_second);
// "0.8%"; "-" if the server sent no interval.
std::string NoiseCell(const client::BenchmarkResult& result);

}  // namespace warpcall::cli
