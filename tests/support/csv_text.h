#pragma once
// PyTorch's schedule CSV as text.

#include <sstream>
#include <string>

namespace graphpipe::tests {

/// The text without its idle cells.
inline std::string without_idle_cells(const std::string& csv) {
  std::string out;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    std::string cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');)
      if (!cell.empty()) cells += (cells.empty() ? "" : ",") + cell;
    out += cells + "\n";
  }
  return out;
}

}  // namespace graphpipe::tests
