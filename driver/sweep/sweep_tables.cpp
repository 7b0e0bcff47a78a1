#include <fmt/format.h>

#include <cmath>

#include "driver/report/json_object.h"
#include "driver/report/report.h"
#include "driver/sweep/sweep_output.h"
#include "support/text.h"

namespace graphpipe::driver {
namespace {

// Quoted where CSV needs it. Spreadsheets evaluate a cell that begins like a formula, also in quotes, and texts may
// hold names from files of strangers: such a cell gets the apostrophe that spreadsheets take for the mark of a text.
// Numbers that begin with a sign stay numbers. Programs that need each text as it is read table.json.
std::string csv_word(const std::string& word) {
  double number = 0;
  const bool is_number = read_number(std::string_view(word), number) && std::isfinite(number);
  const bool is_formula = word.find_first_of("=+-@\t\r\n") == 0 && !is_number;
  const std::string cell = is_formula ? "'" + word : word;
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string out = "\"";
  for (const char c : cell) out.append(c == '"' ? 2 : 1, c);
  return out + "\"";
}

std::string number_word(const SweepRow& row, const std::string& column) {
  const auto found = row.numbers.find(column);
  return found == row.numbers.end() ? "" : json_number(found->second);
}

}  // namespace

std::string shown_number(const std::string& column, double number) {
  if (column.ends_with("_step") || column == "bound" || column == "search_seconds") return human_seconds(number);
  if (column == "peak_bytes") return human_bytes(number);
  if (column == "gap" || column == "idle_fraction") return fmt::format("{:.1f} %", 100 * number);
  return human_count(number);
}

std::string sweep_csv(const Sweep& sweep, const std::vector<SweepCell>& cells,
                      const std::map<std::string, SweepRow>& rows) {
  std::string out;
  for (const SweepAxis& axis : sweep.axes) out += axis.name + ",";
  for (const std::string& column : sweep_columns()) out += column + ",";
  out += "limit,complete,error\r\n";
  for (const SweepCell& cell : cells) {
    const auto found = rows.find(cell.key);
    if (found == rows.end()) continue;
    const SweepRow& row = found->second;
    for (const std::string& value : cell.values) out += csv_word(value) + ",";
    for (const std::string& column : sweep_columns()) out += number_word(row, column) + ",";
    out += csv_word(row.limit) + "," + (row.complete ? "true" : "false") + "," +
           csv_word(Terminal::encode_text(row.error).str()) + "\r\n";
  }
  return out;
}

std::string sweep_json(const Sweep& sweep, const std::vector<SweepCell>& cells,
                       const std::map<std::string, SweepRow>& rows) {
  std::string out;
  for (const SweepCell& cell : cells) {
    const auto found = rows.find(cell.key);
    if (found == rows.end()) continue;
    const SweepRow& row = found->second;
    JsonObject object;
    for (size_t i = 0; i < cell.values.size(); ++i) object.add(sweep.axes[i].name, cell.values[i]);
    for (const std::string& column : sweep_columns()) {
      const std::string number = number_word(row, column);
      object.add_json(column, number.empty() ? "null" : number);
    }
    object.add("limit", row.limit).add("complete", row.complete).add("error", row.error);
    out += (out.empty() ? "\n " : ",\n ") + object.str();
  }
  return "[" + out + "\n]\n";
}

}  // namespace graphpipe::driver
