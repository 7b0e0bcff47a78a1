#pragma once
// A table that grows while a run trains: a row is in the file when append() returns, visible to anyone who follows the
// file. JSON Lines (one object per row) or CSV (a header line first), depending on the extension of the path, .jsonl or
// .csv.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/io/growing_file.h"

namespace graphpipe::runtime {

/// monostate is null, or an empty field. Non-finite numbers are null too, and "nan" or "inf" in CSV.
using Cell = std::variant<std::monostate, int64_t, double, std::string>;

class RecordFile {
 public:
  /// `columns`: the first is "step", an integer. With `keep_until` 0 the file is started anew. Otherwise, if a file
  /// with these columns exists, its rows of steps up to `keep_until` are kept and the others removed: a run that
  /// resumes from an earlier step writes these again. Throws RunError: kUsage if it would have to continue a different
  /// file; kEnvironment.
  RecordFile(std::string path, std::vector<std::string> columns, int64_t keep_until = 0);

  /// One cell per column. Throws RunError (kEnvironment) if the row cannot be written.
  void append(const std::vector<Cell>& cells);

 private:
  bool is_csv() const { return path_.ends_with(".csv"); }
  std::string header() const;
  std::string row(const std::vector<Cell>& cells) const;
  /// Absent if the line is not a row of this table.
  std::optional<int64_t> step_of(std::string_view line) const;
  void drop_later_rows(int64_t keep_until) const;

  std::string path_;
  std::vector<std::string> columns_;
  std::optional<GrowingFile> file_;
};

}  // namespace graphpipe::runtime
