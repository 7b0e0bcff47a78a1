#include "driver/report/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "driver/launch/process.h"
#include "wire/exit_codes.h"
#include "wire/version.h"

namespace graphpipe::driver {
namespace {

JsonObject to_json(const Diagnostic& diagnostic) {
  JsonObject object;
  object.add("code", code_name(diagnostic.code)).add("severity", severity_name(diagnostic.severity));
  object.add("origin", diagnostic.origin.raw()).add("message", diagnostic.message).add("hint", diagnostic.hint);
  return object;
}

/// Whether the cells below the heading are numbers, with or without a unit; "-" stands for none.
bool is_number_column(const std::vector<std::vector<std::string>>& rows, size_t column) {
  return rows.size() > 1 && std::all_of(rows.begin() + 1, rows.end(), [&](const std::vector<std::string>& row) {
           return row.size() <= column || row[column].empty() || row[column][0] == '-' ||
                  std::isdigit(static_cast<unsigned char>(row[column][0])) != 0;
         });
}

std::string scaled(double value, double base, std::initializer_list<const char*> units) {
  // A value that rounds to 1000 is shown in the next unit, so that three digits never need an exponent.
  const auto* unit = units.begin();
  while (value >= 999.5 && unit + 1 != units.end()) {
    value /= base;
    ++unit;
  }
  return value >= 999.5 ? fmt::format("{:.0f} {}", value, *unit) : fmt::format("{:.3g} {}", value, *unit);
}

}  // namespace

void print_problems(std::string_view verb, const Diagnostics& problems) {
  for (const Diagnostic& problem : problems) std::cerr << "graphpipe " << verb << ": " << to_line(problem) << "\n";
}

int report_problems(const Options& options, std::string_view verb, const Diagnostics& problems) {
  print_problems(verb, problems);
  int code = wire::kExitOk;
  for (const Diagnostic& problem : problems)
    if (problem.severity == Severity::kError && code == wire::kExitOk) code = exit_code_of(problem.code);
  if (options.json) print_json(verb, {}, problems, false);
  if (interrupted()) return 128 + interrupting_signal();
  return code == wire::kExitOk ? static_cast<int>(wire::kExitInternal) : code;
}

bool takes_color(const Options& options) {
  return options.output.empty() && isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
}

int end_code(bool complete) {
  if (interrupted()) return 128 + interrupting_signal();
  return complete ? wire::kExitOk : wire::kExitPartial;
}

Diagnostics one_of_each_kind(const Diagnostics& diagnostics) {
  Diagnostics kinds;
  std::vector<size_t> counts;
  for (const Diagnostic& diagnostic : diagnostics) {
    const auto same = std::ranges::find_if(kinds, [&](const Diagnostic& kind) {
      return diagnostic.severity != Severity::kError && kind.severity == diagnostic.severity &&
             kind.code == diagnostic.code && kind.message == diagnostic.message && kind.hint == diagnostic.hint;
    });
    if (same != kinds.end()) {
      ++counts[static_cast<size_t>(same - kinds.begin())];
      continue;
    }
    kinds.push_back(diagnostic);
    counts.push_back(1);
  }
  for (size_t i = 0; i < kinds.size(); ++i)
    if (counts[i] > 1) kinds[i].message = text(counts[i], " times, this one first: ", kinds[i].message);
  return kinds;
}

void report_notes(const Options& options, const Diagnostics& notes) {
  if (options.quiet) return;
  for (const Diagnostic& note : one_of_each_kind(notes)) std::cerr << to_line(note) << "\n";
}

void report_run_notes(const Options& options, const Diagnostics& notes) {
  Diagnostics told = notes;
  if (options.quiet) std::erase_if(told, [](const Diagnostic& note) { return note.severity == Severity::kNote; });
  for (const Diagnostic& note : one_of_each_kind(told)) std::cerr << to_line(note) << "\n";
}

void print_json(std::string_view verb, JsonObject object, const Diagnostics& diagnostics, bool complete) {
  std::vector<JsonObject> items;
  for (const Diagnostic& diagnostic : one_of_each_kind(diagnostics)) items.push_back(to_json(diagnostic));
  object.add("schema", "graphpipe." + std::string(verb) + "/1").add("tool_version", wire::kToolVersion);
  object.add("complete", complete).add("diagnostics", items);
  std::cout << object.str() << std::endl;
}

std::string human_bytes(double bytes) { return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}); }
std::string human_count(double count) { return scaled(count, 1000, {"", "k", "M", "G", "T", "P"}); }
std::string human_seconds(double seconds) {
  if (seconds == 0) return "0 s";
  return scaled(seconds * 1e9, 1000, {"ns", "us", "ms", "s"});
}

Units seconds_units() { return {.base = 1000, .first = 1e-9, .names = {"ns", "us", "ms", "s"}}; }
Units byte_units() { return {.base = 1024, .first = 1, .names = {"B", "KiB", "MiB", "GiB", "TiB"}}; }

Column::Column(const Units& units, const std::vector<double>& values)
    : unit_(units.names.front()), scale_(units.first) {
  double smallest = 0;
  for (const double value : values)
    if (value > 0 && std::isfinite(value)) smallest = smallest > 0 ? std::min(smallest, value) : value;
  for (size_t i = 1; i < units.names.size() && smallest >= scale_ * units.base; ++i) {
    scale_ *= units.base;
    unit_ = units.names[i];
  }
  decimals_ = smallest < 10 * scale_ ? 2 : smallest < 100 * scale_ ? 1 : 0;
}

std::string Column::heading(std::string_view name) const { return text(name, ", ", unit_); }

std::string Column::cell(double value) const {
  return value > 0 && std::isfinite(value) ? fmt::format("{:.{}f}", value / scale_, decimals_) : "-";
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      widths.resize(std::max(widths.size(), i + 1));
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::vector<bool> right;
  for (size_t i = 0; i < widths.size(); ++i) right.push_back(is_number_column(rows, i));
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += right[i] ? fmt::format("  {:>{}}", row[i], widths[i]) : fmt::format("  {:<{}}", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

Progress::Progress(const Options& options, std::string title) : title_(std::move(title)) {
  const char* terminal = std::getenv("TERM");
  active_ = !options.quiet && isatty(STDERR_FILENO) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

Progress::~Progress() {
  if (shown_) std::cerr << "\r\033[K" << std::flush;
}

void Progress::update(double fraction, std::string_view what) {
  if (!active_) return;
  shown_ = true;
  std::string bar;
  if (fraction >= 0) {
    const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 20);
    bar =
        " [" + std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(20 - filled), '.') + "]";
  }
  std::cerr << "\r\033[K" << title_ << bar << " " << Terminal::encode_text(what.substr(0, 60)).str() << std::flush;
}

}  // namespace graphpipe::driver
