#pragma once
// The plans of a sweep, each made by a `graphpipe plan --json` of its own, and kept as it comes: a line of cells.jsonl.
// A sweep that is started again makes those that are missing.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/launch/calibration.h"
#include "driver/sweep/sweep_file.h"
#include "support/result.h"

namespace graphpipe::driver {

/// What a sweep writes, by name.
inline constexpr const char* kSweepCells = "cells.jsonl";
inline constexpr const char* kSweepCsv = "table.csv";
inline constexpr const char* kSweepTable = "table.json";
inline constexpr const char* kSweepPlot = "plot.svg";

struct SweepCell {
  /// By axis.
  std::vector<std::string> values;
  /// Of `graphpipe plan`, without the verb.
  std::vector<std::string> words;
  /// Tells the plan from all others: the words, the bytes of all files that they name, also in a config file, the
  /// calibration where this machine's prices count, and the version of this program.
  std::string key;
  /// Files that the plan reads.
  std::vector<std::string> reads;
  /// The calibration that the plan needs and the key lacks, since it has not been made.
  std::optional<CalibrationRequest> to_measure;
};

/// What is known of a plan: numbers by column, and why there is none.
struct SweepRow {
  std::map<std::string, double> numbers;
  std::string limit;
  /// Why there is no plan: in words, and the name of the code (code_name).
  std::string error, code;
  bool complete = true;
  /// Its process ended otherwise than a plan's should: by a signal, or by a defect of ours.
  bool is_defect = false;
};

/// All combinations. Measures nothing. Errors: those of reading a model, a file that the flags name, or that of
/// GRAPHPIPE_CALIBRATION.
Result<std::vector<SweepCell>> cells_of(const Sweep& sweep);

/// The row of a report of `plan --json`. A plan that does not fit the memory, timed without the limit, counts as none;
/// bounds of other numbers than the step are left out. Errors: kMalformedFile.
Result<SweepRow> row_of(const std::string& report);

struct SweepProgress {
  size_t done = 0, all = 0;
};

/// Makes the plans that the file has not, `jobs` at a time, and adds each as it comes. Returns the rows, by cell; an
/// interrupt leaves the rest out (absent). Errors: kUsage where the file is not of a sweep; kEnvironment where it
/// cannot be written or no process can be started.
Result<std::map<std::string, SweepRow>> make_plans(const std::vector<SweepCell>& cells, const std::string& file,
                                                   int jobs, const std::function<void(SweepProgress)>& progress);

}  // namespace graphpipe::driver
