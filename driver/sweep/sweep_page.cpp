#include "driver/sweep/sweep_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "driver/report/html/html.h"
#include "driver/report/report.h"
#include "driver/sweep/sweep_output.h"
#include "support/median.h"

namespace graphpipe::driver {
namespace {

constexpr size_t kMaxLines = 2000;

std::optional<double> number_of(const SweepTable& table, const SweepCell& cell, const std::string& column) {
  const auto row = table.rows.find(cell.key);
  if (row == table.rows.end()) return std::nullopt;
  const auto number = row->second.numbers.find(column);
  return number == row->second.numbers.end() ? std::nullopt : std::optional(number->second);
}

std::optional<double> step_of(const SweepTable& table, const SweepCell& cell) {
  const std::optional<double> step = number_of(table, cell, "simulated_step");
  return step && *step > 0 ? step : std::nullopt;
}

/// The steps of plans that differ in one axis only: by the values of the other axes, then by its own value. For the
/// axis `batch`, the time per sample.
using Groups = std::map<std::vector<std::string>, std::map<std::string, double>>;

Groups groups_of(const SweepTable& table, size_t axis) {
  Groups groups;
  for (const SweepCell& cell : table.cells) {
    std::vector<std::string> others = cell.values;
    others[axis].clear();
    std::map<std::string, double>& group = groups[std::move(others)];
    double samples = 1;
    if (table.sweep.axes[axis].name == "batch") (void)read_number(std::string_view(cell.values[axis]), samples);
    const std::optional<double> step = step_of(table, cell);
    if (step && samples > 0) group[cell.values[axis]] = *step / samples;
  }
  return groups;
}

/// How often each value of an axis is the fastest, and how much longer it takes than the fastest.
std::string axis_table(const SweepTable& table, size_t axis) {
  std::map<std::string, std::vector<double>> ratios;
  std::map<std::string, size_t> shortest;
  for (const auto& [others, steps] : groups_of(table, axis)) {
    if (steps.size() < 2) continue;
    double best = steps.begin()->second;
    for (const auto& [value, step] : steps) best = std::min(best, step);
    for (const auto& [value, step] : steps) {
      ratios[value].push_back(step / best);
      shortest[value] += step <= best ? 1 : 0;
    }
  }
  if (ratios.empty()) return "";
  const std::string& name = table.sweep.axes[axis].name;
  std::vector<std::vector<std::string>> rows{{html_text(name), "shortest", "longer by a factor of, median", "at most"}};
  for (const std::string& value : table.sweep.axes[axis].values) {
    const auto found = ratios.find(value);
    if (found == ratios.end()) continue;
    const double largest = std::ranges::max(found->second);
    rows.push_back({html_text(value), fmt::format("{} of {}", shortest[value], found->second.size()),
                    fmt::format("{:.3f}", median(found->second)), fmt::format("{:.3f}", largest)});
  }
  const std::string what = name == "batch" ? "time a sample takes, by batch" : "step, by " + name;
  return html_table("Simulated " + what + ", all else equal", rows, origin_mark(Origin::kSimulated));
}

std::string shown(std::optional<double> number, const std::string& column) {
  if (!number) return "";
  std::string words = html_text(shown_number(column, *number));
  if (words.ends_with(" %")) words.replace(words.size() - 2, 1, "&nbsp;");
  return words;
}

std::string all_plans(const SweepTable& table) {
  std::vector<std::vector<std::string>> rows{{"plan"}};
  for (const SweepAxis& axis : table.sweep.axes) rows[0].push_back(html_text(axis.name));
  for (const std::string& column : sweep_columns()) {
    std::string words = column;
    std::ranges::replace(words, '_', ' ');
    rows[0].push_back(words);
  }
  rows[0].push_back("limited by, or why there is none");
  for (size_t i = 0; i < std::min(table.cells.size(), kMaxLines); ++i) {
    const SweepCell& cell = table.cells[i];
    std::vector<std::string>& row = rows.emplace_back(std::vector<std::string>{std::to_string(i + 1)});
    for (const std::string& value : cell.values) row.push_back(html_text(value));
    for (const std::string& column : sweep_columns()) row.push_back(shown(number_of(table, cell, column), column));
    const auto known = table.rows.find(cell.key);
    row.push_back(known == table.rows.end()
                      ? ""
                      : html_text(known->second.error.empty() ? known->second.limit : known->second.error));
  }
  std::string out;
  if (table.cells.size() > kMaxLines)
    out = fmt::format("<p>The first {} of {} plans; table.csv has all.</p>\n", kMaxLines, table.cells.size());
  return out + html_table("All plans", rows, origin_mark(Origin::kSimulated));
}

std::string summary(const SweepTable& table) {
  const SweepCell* best = nullptr;
  size_t without = 0;
  for (const SweepCell& cell : table.cells) {
    const std::optional<double> step = step_of(table, cell);
    without += step ? 0 : 1;
    if (step && (best == nullptr || *step < *step_of(table, *best))) best = &cell;
  }
  std::string out = fmt::format("<p>{} plans, {} of them without a plan.", table.cells.size(), without);
  if (best == nullptr) return out + "</p>\n";
  out += " The shortest step is " + html_text(human_seconds(*step_of(table, *best))) + " " +
         origin_mark(Origin::kSimulated);
  for (size_t i = 0; i < best->values.size(); ++i)
    out += (i == 0 ? ": " : ", ") + html_text(table.sweep.axes[i].name) + " " + html_text(best->values[i]);
  return out + ".</p>\n";
}

}  // namespace

std::string sweep_page(const std::string& name, const SweepTable& table) {
  std::string body = summary(table);
  if (!table.sweep.plot.x.empty()) {
    const std::string what = "Simulated step over " + table.sweep.plot.x +
                             (table.sweep.plot.line.empty() ? "" : ", a line for each " + table.sweep.plot.line);
    const std::string picture = "<div role=\"img\" aria-label=\"" +
                                html_text(what + "; the table below has its numbers") + "\">" +
                                sweep_svg(table.sweep, table.cells, table.rows) + "</div>";
    body += "<h2>" + html_text(what) + "</h2>\n" + wide_part(what, picture);
  }
  std::string worth;
  for (size_t axis = 0; axis < table.sweep.axes.size(); ++axis)
    if (table.sweep.axes[axis].values.size() > 1) worth += axis_table(table, axis);
  if (!worth.empty()) body += "<h2>What each choice is worth</h2>\n" + worth;
  return html_page(name, body + "<h2>Plans</h2>\n" + all_plans(table));
}

}  // namespace graphpipe::driver
