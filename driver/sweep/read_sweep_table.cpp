#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "driver/sweep/sweep_page.h"
#include "files/strict_json.h"
#include "files/text_file.h"

namespace graphpipe::driver {
namespace {

constexpr size_t kMaxAxes = 32;

/// Takes the values of a list of objects as a scan of the text meets them.
class TableReader {
 public:
  /// What is wrong with the value; empty where nothing is.
  std::string take(const files::JsonEvent& event) {
    if (event.path.empty()) return event.kind == files::JsonKind::kArray ? "" : "it is no list of plans";
    if (event.path.size() == 1) return begin_plan(event);
    if (event.path.size() != 2) return "it is no number and no word";
    return take_field(event.path[1], event);
  }

  /// Why the text is no table; empty if it is one.
  std::string finish() {
    std::string problem = end_plan();
    if (problem.empty() && table_.cells.empty()) return "it holds no plan";
    if (problem.empty()) choose_plot();
    return problem;
  }
  SweepTable table() { return std::move(table_); }

 private:
  std::string begin_plan(const files::JsonEvent& event) {
    if (event.kind != files::JsonKind::kObject) return "it is no plan";
    if (table_.cells.size() >= kMaxSweepCells) return text("there are more than ", kMaxSweepCells, " plans");
    std::string problem = end_plan();
    table_.cells.push_back({.values = {}, .words = {}, .key = std::to_string(table_.cells.size())});
    return problem;
  }

  std::string take_field(const std::string& name, const files::JsonEvent& event) {
    SweepCell& cell = table_.cells.back();
    SweepRow& row = table_.rows[cell.key];
    const bool is_number = event.kind == files::JsonKind::kInteger || event.kind == files::JsonKind::kReal;
    if (name == "complete") row.complete = event.number != 0;
    else if (name == "limit") row.limit = event.string;
    else if (name == "error") row.error = event.string;
    else if (std::ranges::find(columns_, name) != columns_.end()) {
      if (is_number) row.numbers[name] = event.number;
      else if (event.kind != files::JsonKind::kNull) return "it is no number";
    } else {
      return take_axis(name, event);
    }
    return "";
  }

  std::string take_axis(const std::string& name, const files::JsonEvent& event) {
    if (event.kind != files::JsonKind::kString) return "it is no word";
    SweepCell& cell = table_.cells.back();
    std::vector<SweepAxis>& axes = table_.sweep.axes;
    const size_t at = cell.values.size();
    if (table_.cells.size() == 1 && at < kMaxAxes) axes.push_back({.name = name, .values = {}});
    if (at >= axes.size() || axes[at].name != name) return "the first plan has no such axis in this place";
    const std::string value(event.string);
    if (known_.insert({at, value}).second) axes[at].values.push_back(value);
    cell.values.push_back(value);
    return "";
  }

  std::string end_plan() const {
    const bool lacks = !table_.cells.empty() && table_.cells.back().values.size() != table_.sweep.axes.size();
    return lacks ? "a plan lacks the value of an axis" : "";
  }

  void choose_plot() {
    const auto is_numeric = [](const SweepAxis& axis) {
      return std::ranges::all_of(axis.values, [](const std::string& value) {
        double number = 0;
        return read_number(std::string_view(value), number);
      });
    };
    const SweepAxis* x = nullptr;
    for (const SweepAxis& axis : table_.sweep.axes)
      if (axis.values.size() > 1 && is_numeric(axis) && (x == nullptr || axis.name == "devices")) x = &axis;
    for (const SweepAxis& axis : table_.sweep.axes)
      if (axis.values.size() > 1 && x == nullptr) x = &axis;
    if (x == nullptr) return;
    table_.sweep.plot = {.x = x->name, .y = "simulated_step", .line = ""};
    for (const SweepAxis& axis : table_.sweep.axes)
      if (axis.values.size() > 1 && &axis != x && (table_.sweep.plot.line.empty() || axis.name == "planner"))
        table_.sweep.plot.line = axis.name;
  }

  const std::vector<std::string> columns_ = sweep_columns();
  SweepTable table_;
  std::set<std::pair<size_t, std::string>> known_;
};

}  // namespace

std::string sweep_table_file(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return "";
  if (S_ISDIR(info.st_mode)) {
    const std::string table = path + "/table.json", plan = path + "/plan.json";
    return stat(plan.c_str(), &info) != 0 && stat(table.c_str(), &info) == 0 ? table : "";
  }
  if (!S_ISREG(info.st_mode)) return "";
  char first = 0;
  std::ifstream(path) >> first;
  return first == '[' ? path : "";
}

Result<SweepTable> read_sweep_table(const std::string& file) {
  constexpr int64_t kMaxBytes = int64_t{256} << 20;
  GP_TRY(const std::string content, files::read_file(file, kMaxBytes));
  TableReader reader;
  const Status read = files::scan_json(content, {.max_bytes = kMaxBytes, .deepest = 3},
                                       [&](const files::JsonEvent& event) { return reader.take(event); });
  const std::string problem = read ? reader.finish() : read.problems().front().message;
  if (problem.empty()) return reader.table();
  return Diagnostic{.code = Code::kMalformedFile,
                    .origin = ModelText(file),
                    .message = "it is no table of a sweep: " + problem,
                    .hint = "pass the table.json that `graphpipe sweep` wrote, or its folder"};
}

}  // namespace graphpipe::driver
