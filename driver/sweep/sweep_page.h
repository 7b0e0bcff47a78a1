#pragma once
// What `graphpipe sweep` has written, read again and shown as an HTML page.

#include <map>
#include <string>
#include <vector>

#include "driver/sweep/sweep_cells.h"
#include "driver/sweep/sweep_file.h"
#include "support/result.h"

namespace graphpipe::driver {

/// Of a table.json: its axes with their values, a cell for each line, and the rows by the cells' keys. The plot shows
/// the simulated step over the devices, or the first axis of numbers, a line for each planner, or each value of
/// another.
struct SweepTable {
  Sweep sweep;
  std::vector<SweepCell> cells;
  std::map<std::string, SweepRow> rows;
};

/// The table's file where the path names one, or a folder of a sweep; else empty.
std::string sweep_table_file(const std::string& path);
/// Errors: kUnreadableFile, kMalformedFile with the place, kLimitExceeded.
Result<SweepTable> read_sweep_table(const std::string& file);

/// A page that loads and runs nothing: the picture, what each axis is worth, and all plans. `name` is text.
std::string sweep_page(const std::string& name, const SweepTable& table);

}  // namespace graphpipe::driver
