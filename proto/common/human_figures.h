// Figures for people: tables of the command and the server's page show them alike.
#pragma once

#include <string>

namespace warpcall {

// Three significant digits and the unit that fits: "850 ns", "12.3 us", "1.20 s". Here and below
// "-" for what is no number or infinite.
std::string HumanTime(double nanoseconds);

// Powers of 1024: "512 B", "16.0 MiB".
std::string HumanBytes(double bytes);

// Powers of 1000 before `unit`: HumanRate(4.3e12, "B/s") is "4.30 TB/s"; "-" for what is not above
// 0.
std::string HumanRate(double per_second, const char* unit);

}  // namespace warpcall
