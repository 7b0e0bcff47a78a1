// graphpipe sweep: plans for all combinations of some flags' values, as tables and a picture.

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>
#include <thread>

#include "driver/cli/commands.h"
#include "driver/cli/usage.h"
#include "driver/launch/calibration.h"
#include "driver/launch/folder_lock.h"
#include "driver/launch/process.h"
#include "driver/report/report.h"
#include "driver/sweep/sweep_output.h"
#include "files/text_file.h"
#include "support/output_file.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
namespace {

struct Swept {
  size_t plans = 0, without = 0, missing = 0;  // all cells; those that have no plan; those not made yet
  std::string error;                           // of the first cell without a plan
  Code code = Code::kNoFeasiblePlan;           // its code
  bool searched = false;                       // a planner has found none; else the words or the files are at fault
};

Code code_named(std::string_view name) {
  for (int code = 0; code < static_cast<int>(Code::kInternal); ++code)
    if (code_name(static_cast<Code>(code)) == name) return static_cast<Code>(code);
  return Code::kInternal;
}

// The results of a sweep lie beside its cells. Without cells, a file with the name of a result is somebody else's.
Status check_results_folder(const std::string& folder) {
  if (std::filesystem::exists(folder + kSweepCells)) return Ok{};
  for (const char* name : {kSweepCsv, kSweepTable, kSweepPlot})
    if (std::filesystem::exists(folder + name))
      return usage("-o " + folder, text("its ", name, " was not written by a sweep and would be overwritten"),
                   "choose another folder");
  return Ok{};
}

// Results of an earlier sweep are written over, unless one has become what this sweep reads.
Status check_results_unread(const Options& options, const std::vector<SweepCell>& cells) {
  std::set<std::string> reads{options.input};
  for (const SweepCell& cell : cells) reads.insert(cell.reads.begin(), cell.reads.end());
  for (const char* name : {kSweepCells, kSweepCsv, kSweepTable, kSweepPlot})
    for (const std::string& read : reads)
      if (is_same_file(options.output + "/" + name, read))
        return usage("-o " + options.output, text("its ", name, " is read by the same command"),
                     "choose another folder");
  return Ok{};
}

// Makes the calibrations that cells still need. Each of their plans would make one, those that run side by side would
// disturb each other, and none would have it in its key.
Status measure_for(const std::vector<SweepCell>& cells) {
  std::set<CalibrationRequest> requests;
  for (const SweepCell& cell : cells)
    if (cell.to_measure) requests.insert(*cell.to_measure);
  for (const CalibrationRequest& request : requests) GP_TRY_VOID(calibrate_machine(request));
  return Ok{};
}

// The tables are written by then: only the cells that it names are in doubt.
Status check_endings(const std::vector<SweepCell>& cells, const std::map<std::string, SweepRow>& rows) {
  Diagnostics problems;
  for (const SweepCell& cell : cells) {
    const auto row = rows.find(cell.key);
    if (row == rows.end() || !row->second.is_defect) continue;
    std::string words;
    for (const std::string& word : cell.words) words += " " + word;
    problems.push_back({.code = Code::kEnvironment,
                        .origin = ModelText("graphpipe plan" + words),
                        .message = Terminal::encode_text(row->second.error).str(),
                        .hint = "run that command by itself; the other plans are in the tables"});
  }
  if (!problems.empty()) return problems;
  return Ok{};
}

Result<Swept> sweep_into(const Options& options) {
  GP_TRY(Sweep sweep, read_sweep(options.input));
  if (!options.plot.empty()) GP_TRY_VOID(plot_as_asked(options.plot, sweep));
  GP_TRY(std::vector<SweepCell> cells, cells_of(sweep));
  GP_TRY(const FolderLock lock, FolderLock::take(options.output));
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  Progress progress(options, "planning");
  const std::string folder = options.output + "/";
  GP_TRY_VOID(check_results_folder(folder));
  GP_TRY_VOID(check_results_unread(options, cells));
  if (std::ranges::any_of(cells, [](const SweepCell& cell) { return cell.to_measure.has_value(); })) {
    GP_TRY_VOID(measure_for(cells));
    GP_TRY(cells, cells_of(sweep));
  }
  GP_TRY(const auto rows,
         make_plans(cells, folder + kSweepCells, options.jobs > 0 ? options.jobs : cores, [&](SweepProgress made) {
           progress.update(static_cast<double>(made.done) / static_cast<double>(made.all),
                           text(made.done, " of ", made.all));
         }));
  GP_TRY_VOID(files::write_file(folder + kSweepCsv, sweep_csv(sweep, cells, rows)));
  GP_TRY_VOID(files::write_file(folder + kSweepTable, sweep_json(sweep, cells, rows)));
  if (!sweep.plot.x.empty()) GP_TRY_VOID(files::write_file(folder + kSweepPlot, sweep_svg(sweep, cells, rows)));
  GP_TRY_VOID(check_endings(cells, rows));
  Swept swept{.plans = cells.size()};
  for (const SweepCell& cell : cells) {
    const auto row = rows.find(cell.key);
    swept.missing += row == rows.end() ? 1 : 0;
    if (row == rows.end() || row->second.error.empty()) continue;
    ++swept.without;
    swept.searched = swept.searched || row->second.code == code_name(Code::kNoFeasiblePlan);
    if (!swept.error.empty()) continue;
    swept.error = Terminal::encode_text(row->second.error).str();
    swept.code = code_named(row->second.code);
  }
  if (swept.missing == 0 && swept.without == swept.plans)
    return Diagnostic{.code = swept.searched ? Code::kNoFeasiblePlan : swept.code,
                      .origin = ModelText(options.input),
                      .message = "no combination has a plan; of the first: " + swept.error,
                      .hint = "see table.csv for all of them"};
  return swept;
}

}  // namespace

int run_sweep(const Options& options) {
  catch_interrupts();
  const Result<Swept> swept = sweep_into(options);
  if (!swept) return report_problems(options, "sweep", swept.problems());
  const bool complete = swept->missing == 0;
  if (options.json) {
    JsonObject object;
    object.add("folder", options.output).add("plans", swept->plans).add("without_plan", swept->without);
    print_json("sweep", object.add("missing", swept->missing), {}, complete);
  } else {
    std::cout << swept->plans - swept->missing << " of " << swept->plans << " plans in "
              << Terminal::encode_text(options.output).str() << ", " << swept->without << " without a plan\n";
  }
  return end_code(complete);
}

}  // namespace graphpipe::driver
