#pragma once
// The results of a sweep as tables and as a picture.

#include <map>
#include <string>
#include <vector>

#include "driver/sweep/sweep_cells.h"
#include "driver/sweep/sweep_file.h"

namespace graphpipe::driver {

/// One line per plan that is known, in the order of the cells: the axes, the columns (empty where a plan has no such
/// number), what limits it, and why there is none (RFC 4180). Texts that spreadsheets would take for formulas begin
/// with an apostrophe.
std::string sweep_csv(const Sweep& sweep, const std::vector<SweepCell>& cells,
                      const std::map<std::string, SweepRow>& rows);
/// The same as a list of objects; numbers that are not there are null.
std::string sweep_json(const Sweep& sweep, const std::vector<SweepCell>& cells,
                       const std::map<std::string, SweepRow>& rows);
/// A number of a column as people read it: "1.19 ms", "396 KiB", "52.2 %".
std::string shown_number(const std::string& column, double number);
/// A panel for each combination of the axes that are neither x nor line, kMaxPanels at most.
std::string sweep_svg(const Sweep& sweep, const std::vector<SweepCell>& cells,
                      const std::map<std::string, SweepRow>& rows);
inline constexpr size_t kMaxPanels = 24;

}  // namespace graphpipe::driver
