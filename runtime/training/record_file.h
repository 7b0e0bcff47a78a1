#pragma once
// A table that grows while a run trains: a row is in the file when append() returns, and whoever follows the file sees
// it. JSON Lines (an object per row) or CSV (a line of names first) by the ending of the path, .jsonl or .csv.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/io/growing_file.h"

namespace graphpipe::runtime {

/// Nothing is null, or an empty field. Numbers that are not finite are null too, and "nan" or "inf" in CSV.
using Cell = std::variant<std::monostate, int64_t, double, std::string>;

class RecordFile {
 public:
  /// `columns`: the first is "step", an integer. With `keep_until` 0 the file begins anew. Else, where a file of these
  /// columns stands there, its rows of steps up to `keep_until` stay and others go: a run that goes on from an earlier
  /// step writes these again. Throws RunError: kUsage where another file stands there that it would have to go on with;
  /// kEnvironment.
  RecordFile(std::string path, std::vector<std::string> columns, int64_t keep_until = 0);

  /// A cell per column. Throws RunError (kEnvironment) where the row cannot be written.
  void append(const std::vector<Cell>& cells);

 private:
  bool is_csv() const { return path_.ends_with(".csv"); }
  std::string header() const;
  std::string row(const std::vector<Cell>& cells) const;
  /// Absent where the line is no row of this table.
  std::optional<int64_t> step_of(std::string_view line) const;
  void drop_later_rows(int64_t keep_until) const;

  std::string path_;
  std::vector<std::string> columns_;
  std::optional<GrowingFile> file_;
};

}  // namespace graphpipe::runtime
