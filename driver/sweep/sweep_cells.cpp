#include "driver/sweep/sweep_cells.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "driver/cli/commands.h"
#include "driver/launch/digest.h"
#include "driver/launch/process.h"
#include "driver/pipeline/machine.h"
#include "driver/pipeline/pipeline.h"
#include "driver/report/json_object.h"
#include "driver/report/report.h"
#include "files/strict_json.h"
#include "files/text_file.h"
#include "support/descriptor.h"
#include "support/text.h"
#include "wire/exit_codes.h"
#include "wire/version.h"

namespace graphpipe::driver {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr std::string_view kKey = R"({"key":")";
constexpr size_t kKeyDigits = 64;

void add_word(const std::string& flag, const std::string& value, SweepCell& cell) {
  if (flag == "model") cell.words.push_back(value);
  else if (value == "true") cell.words.push_back("--" + flag);
  else if (value != "false") cell.words.push_back(text("--", flag, "=", value));
}

/// Makes the keys of cells. What several cells depend on is read once.
class KeyMaker {
 public:
  Status add_key(SweepCell& cell) {
    std::string told(wire::kToolVersion);
    for (const std::string& word : cell.words) told += '\0' + word;
    const Result<ReadCommand> command = read_command(plan_, cell.words);
    if (command) {
      GP_TRY_VOID(add_files(*command, cell, told));
      GP_TRY_VOID(add_prices(command->options, cell, told));
    } else {
      // Its refusal is all that `plan` will answer.
      for (const Diagnostic& problem : command.problems()) told += '\0' + problem.message;
    }
    cell.key = sha256_of_text(told);
    return Ok{};
  }

 private:
  Status add_files(const ReadCommand& command, SweepCell& cell, std::string& told) {
    std::vector<NamedFile> files = command.files;
    // Plans also follow what the module file beside the model says (docs/files.md).
    files.push_back({"module", command.options.model.model + ".module.json"});
    for (const NamedFile& file : files) {
      GP_TRY(const std::string digest, digest_of(file));
      told += text('\0', file.flag, digest);
      cell.reads.push_back(file.path);
    }
    return Ok{};
  }

  Status add_prices(const Options& options, SweepCell& cell, std::string& told) {
    const std::optional<CalibrationRequest> request = calibration_request(options);
    if (!request) return Ok{};
    auto found = prices_.find(*request);
    if (found == prices_.end()) {
      GP_TRY(LocalPrices prices, local_prices(*request));
      found = prices_.emplace(*request, std::move(prices)).first;
    }
    told += '\0' + found->second.digest;
    if (!found->second.known) cell.to_measure = request;
    return Ok{};
  }

  /// "" where no file has that name: a preset of a cluster has none.
  Result<std::string> digest_of(const NamedFile& file) {
    const std::string path = file.flag == "--plan" ? plan_file_of(file.path) : file.path;
    if (access(path.c_str(), F_OK) != 0 && file.flag != "model") return std::string();
    auto found = known_.find(path);
    if (found == known_.end()) {
      GP_TRY(std::string digest, sha256_of_file(path));
      found = known_.emplace(path, std::move(digest)).first;
    }
    return found->second;
  }

  const CommandEntry& plan_ = *std::ranges::find(all_commands(), "plan", &CommandEntry::name);
  std::map<std::string, std::string> known_;
  std::map<CalibrationRequest, LocalPrices> prices_;
};

/// Collects the columns of a report.
struct RowReader {
  SweepRow row;
  bool is_error = false;     // the diagnostic that is being read
  std::string code, origin;  // its own
  bool fits = true, is_of_profile = false;
  std::string unit;

  std::string operator()(const files::JsonEvent& event) {
    const std::vector<std::string>& path = event.path;
    if (path.empty()) return "";
    const bool is_number = event.kind == files::JsonKind::kInteger || event.kind == files::JsonKind::kReal;
    if (path.size() == 1 && is_number) row.numbers[path[0]] = event.number;
    if (path.size() == 1 && path[0] == "complete") row.complete = event.number != 0;
    if (path.size() == 1 && path[0] == "limit_kind") row.limit = event.string;
    if (path.size() == 1 && path[0] == "fits_memory") fits = event.number != 0;
    if (path.size() == 1 && path[0] == "profile_format") is_of_profile = true;
    if (path.size() == 1 && path[0] == "unit") unit = event.string;
    if (path.size() == 2 && path[0] == "peak_bytes" && is_number)
      row.numbers["peak_bytes"] = std::max(row.numbers["peak_bytes"], event.number);
    if (path.size() == 2 && path[0] == "stages") row.numbers["stage_count"] += 1;
    if (path.size() == 3 && path[0] == "stages" && path[1] == "[0]" && path[2] == "micro_batch")
      row.numbers["micro_batch"] = event.number;
    if (path.size() == 3 && path[0] == "diagnostics") read_diagnostic(path[2], event.string);
    return "";
  }
  void read_diagnostic(const std::string& field, std::string_view words) {
    if (field == "code") code = words;
    if (field == "severity") is_error = words == "error";
    if (field == "origin") origin = words;
    if (field != "message" || !is_error || !row.error.empty()) return;
    row.code = code;
    row.error = (origin.empty() ? "" : origin + ": ") + std::string(words);
  }
  /// The row, when all is read.
  SweepRow take() {
    // Planners of other projects bound their own objectives, which are of several units.
    if (is_of_profile && unit != "s")
      for (const char* column : {"bound", "gap"}) row.numbers.erase(column);
    // A step that is timed as if memory had no limit would stand beside those of plans that keep to it.
    if (!fits && row.error.empty()) {
      const auto step = row.numbers.find("simulated_step");
      row.error = "the plan does not fit the memory";
      if (step != row.numbers.end()) row.error += "; without the limit its step takes " + human_seconds(step->second);
      row.code = code_name(Code::kNoFeasiblePlan);
    }
    if (!fits)
      for (const char* column : {"simulated_step", "steady_step"}) row.numbers.erase(column);
    return std::move(row);
  }
};

Diagnostic no_file(const std::string& path, std::string_view what) {
  return {.code = Code::kEnvironment,
          .origin = ModelText(path),
          .message = text(what, ": ", std::strerror(errno)),
          .hint = "check the folder of -o, and the space on its disk"};
}

/// The lines of earlier sweeps, and those that are added.
class CellFile {
 public:
  explicit CellFile(const std::string& path) : path_(path) {}

  Status open(std::map<std::string, SweepRow>& rows) {
    if (access(path_.c_str(), F_OK) == 0) {
      GP_TRY(const std::string content, files::read_file(path_, kMaxFileBytes));
      if (!content.empty() && !content.starts_with(kKey))
        return Diagnostic{.code = Code::kUsage,
                          .origin = ModelText(path_),
                          .message = "the file was not written by a sweep",
                          .hint = "choose another folder"};
      for (const std::string_view line : split(content, "\n")) take(line, rows);
      starts_line_ = content.empty() || content.back() == '\n';
    }
    file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!file_) return no_file(path_, "it cannot be opened");
    return Ok{};
  }

  Status add(const SweepCell& cell, const std::string& report) {
    const std::string line = text(starts_line_ ? "" : "\n", kKey, cell.key, R"(","report":)", report, "}\n");
    starts_line_ = true;
    if (::write(file_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      return no_file(path_, "it cannot be written");
    return Ok{};
  }

 private:
  // Ignores a line that a killed sweep has not finished.
  static void take(std::string_view line, std::map<std::string, SweepRow>& rows) {
    constexpr std::string_view kReport = R"(","report":)";
    const size_t begin = kKey.size() + kKeyDigits;
    if (!line.starts_with(kKey) || line.size() < begin || !line.substr(begin).starts_with(kReport) ||
        !line.ends_with("}"))
      return;
    const std::string_view report = line.substr(begin + kReport.size(), line.size() - begin - kReport.size() - 1);
    if (Result<SweepRow> row = row_of(std::string(report)); row.ok())
      rows[std::string(line.substr(kKey.size(), kKeyDigits))] = std::move(row).value();
  }

  std::string path_;
  Descriptor file_;
  bool starts_line_ = true;
};

/// The object that the process has printed among its notes.
std::string report_in(const std::string& output) {
  for (const std::string_view line : split(output, "\n"))
    if (line.starts_with("{") && line.ends_with("}")) return std::string(line);
  return "";
}

std::string this_program() {
  std::string path(4096, '\0');
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return path;
}

/// Threads that take one cell after the other.
class PlanMaker {
 public:
  PlanMaker(std::vector<const SweepCell*> cells, CellFile& file, std::map<std::string, SweepRow>& rows,
            const std::function<void(SweepProgress)>& progress)
      : cells_(std::move(cells)), file_(file), rows_(rows), progress_(progress) {}

  Status make(int jobs) {
    std::vector<std::thread> threads;
    for (int i = 0; i < jobs; ++i) threads.emplace_back([this] { work(); });
    for (std::thread& thread : threads) thread.join();
    if (!problems_.empty()) return problems_;
    return Ok{};
  }

 private:
  void work() {
    for (size_t i = next_++; i < cells_.size() && !interrupted() && !failed_; i = next_++) {
      std::vector<std::string> words = {program_, "plan"};
      words.insert(words.end(), cells_[i]->words.begin(), cells_[i]->words.end());
      words.insert(words.end(), {"--json", "--quiet"});
      const Result<Finished> finished = run_and_collect({.arguments = words});
      const std::lock_guard lock(mutex_);
      if (const Status taken = take(*cells_[i], finished); !taken) {
        failed_ = true;
        for (const Diagnostic& problem : taken.problems()) problems_.push_back(problem);
      }
      progress_({++done_, cells_.size()});
    }
  }

  // "No plan is feasible" and "these flags do not go together" are results too.
  Status take(const SweepCell& cell, const Result<Finished>& finished) {
    if (interrupted()) return Ok{};
    if (!finished) return finished.problems();
    const int code = finished->ending.exit_code;
    const std::string report = report_in(finished->output);
    const Result<SweepRow> row = row_of(report);
    const bool is_result = code == wire::kExitOk || code == wire::kExitUsage || code == wire::kExitInputRefused ||
                           code == wire::kExitNoPlan || code == wire::kExitPartial;
    if (finished->ending.signal == 0 && is_result && row.ok()) {
      rows_[cell.key] = *row;
      // A refusal is not kept: the file, or a data file of it, may be repaired before the next sweep.
      return code == wire::kExitInputRefused ? Status(Ok{}) : file_.add(cell, report);
    }
    // The others may have plans all the same. Not kept: it is made again when the sweep is.
    rows_[cell.key] = {.error = row.ok() && !row->error.empty() ? row->error : ending_of(finished->ending),
                       .is_defect = true};
    return Ok{};
  }

  static std::string ending_of(const Ending& ending) {
    return ending.signal != 0 ? text("it ended by signal ", ending.signal)
                              : text("it ended with exit code ", ending.exit_code);
  }

  const std::string program_ = this_program();
  const std::vector<const SweepCell*> cells_;
  CellFile& file_;
  std::map<std::string, SweepRow>& rows_;
  const std::function<void(SweepProgress)>& progress_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  size_t done_ = 0;
  Diagnostics problems_;
};

}  // namespace

Result<std::vector<SweepCell>> cells_of(const Sweep& sweep) {
  KeyMaker keys;
  std::vector<SweepCell> cells;
  std::vector<size_t> chosen(sweep.axes.size());
  for (bool more = true; more;) {
    SweepCell& cell = cells.emplace_back();
    for (const auto& [flag, value] : sweep.flags) add_word(flag, value, cell);
    for (size_t i = 0; i < chosen.size(); ++i) {
      cell.values.push_back(sweep.axes[i].values[chosen[i]]);
      add_word(sweep.axes[i].name, cell.values.back(), cell);
    }
    GP_TRY_VOID(keys.add_key(cell));
    // Advances to the next combination, like an odometer whose wheels have these sizes.
    size_t wheel = chosen.size();
    while (wheel > 0 && ++chosen[wheel - 1] == sweep.axes[wheel - 1].values.size()) chosen[--wheel] = 0;
    more = wheel > 0;
  }
  return cells;
}

Result<SweepRow> row_of(const std::string& report) {
  RowReader reader;
  GP_TRY_VOID(files::scan_json(report, {}, std::ref(reader)));
  return reader.take();
}

Result<std::map<std::string, SweepRow>> make_plans(const std::vector<SweepCell>& cells, const std::string& file,
                                                   int jobs, const std::function<void(SweepProgress)>& progress) {
  std::map<std::string, SweepRow> rows;
  CellFile lines(file);
  GP_TRY_VOID(lines.open(rows));
  std::vector<const SweepCell*> missing;
  for (const SweepCell& cell : cells)
    if (!rows.contains(cell.key)) missing.push_back(&cell);
  GP_TRY_VOID(PlanMaker(std::move(missing), lines, rows, progress).make(jobs));
  return rows;
}

}  // namespace graphpipe::driver
