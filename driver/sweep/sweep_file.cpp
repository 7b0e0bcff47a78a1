#include "driver/sweep/sweep_file.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "driver/cli/manual.h"
#include "driver/cli/suggestion.h"
#include "driver/cli/toml_file.h"
#include "driver/cli/usage.h"
#include "support/text.h"
#include "wire/run_options.h"

namespace graphpipe::driver {
namespace {

// The flags of `plan` by name, and whether each is a switch.
std::map<std::string, bool> plan_words() {
  // A sweep sets these itself.
  const std::set<std::string> own = {"output", "json", "quiet", "help"};
  const auto plan = std::ranges::find(all_commands(), "plan", &CommandEntry::name);
  std::map<std::string, bool> words{{"model", false}};
  for (const ShownFlag& flag : flags_of(*plan))
    for (const std::string& name : flag.long_names)
      if (!own.contains(name)) words.emplace(name, flag.value.empty());
  return words;
}

struct PlotProblem {
  std::string message, hint;
};

std::vector<PlotProblem> plot_problems(const Sweep& sweep) {
  std::vector<PlotProblem> problems;
  const SweepPlot& plot = sweep.plot;
  for (const std::string* name : {&plot.x, &plot.line})
    if (std::ranges::find(sweep.axes, *name, &SweepAxis::name) == sweep.axes.end() &&
        !(name->empty() && name == &plot.line))
      problems.push_back(
          {text("the plot's ", name == &plot.x ? "x" : "line", " is no axis of the sweep: ", quoted(ModelText(*name))),
           "name one of those below [axes]"});
  const std::vector<std::string> columns = sweep_columns();
  if (std::ranges::find(columns, plot.y) == columns.end())
    problems.push_back({text("the plot's y is no column of numbers: ", quoted(ModelText(plot.y))),
                        "take simulated_step, or another column of table.csv"});
  return problems;
}

class SweepReader {
 public:
  explicit SweepReader(const std::string& path) : path_(path) {}

  Result<Sweep> read(const TomlNode& file) {
    for (const auto& [key, node] : file.table) read_part(key, node);
    size_t cells = 1;
    for (const SweepAxis& axis : sweep_.axes) cells = std::min(cells * axis.values.size(), kMaxSweepCells + 1);
    if (cells > kMaxSweepCells) add(1, text("these are more than ", kMaxSweepCells, " plans"), "leave values out");
    if (!has("model") && !has("profile-format"))
      add(1, "no model is named", "write model = \"model.onnx\" below [flags], or a list below [axes]");
    check_plot();
    if (!problems_.empty()) return problems_;
    return sweep_;
  }

 private:
  void add(int64_t line, std::string message, std::string hint) {
    problems_.push_back({.code = Code::kMalformedFile,
                         .origin = ModelText(path_),
                         .message = text("line ", line, ": ", message),
                         .hint = std::move(hint)});
  }

  void read_part(const std::string& name, const TomlNode& node) {
    if (!node.is(TomlKind::kTable) || (name != "flags" && name != "axes" && name != "plot"))
      return add(node.line, text(quoted(ModelText(name)), " is no part of a sweep"),
                 "a sweep has the parts [flags], [axes] and [plot]");
    for (const auto& [word, value] : node.table) {
      if (name == "plot") read_plot(word, value);
      else if (is_flag(word, value)) name == "flags" ? read_flag(word, value) : read_axis(word, value);
    }
  }

  bool has(const std::string& name) const {
    return std::ranges::any_of(sweep_.flags, [&](const auto& flag) { return flag.first == name; }) ||
           std::ranges::any_of(sweep_.axes, [&](const SweepAxis& axis) { return axis.name == name; });
  }

  bool is_flag(const std::string& name, const TomlNode& node) {
    if (!words_.contains(name)) {
      std::vector<std::string> known;
      for (const auto& [word, is_switch] : words_) known.push_back(word);
      add(node.line, text("`plan` has no flag ", quoted(ModelText("--" + name)), suggestion(name, known)),
          "keys are flags of `graphpipe plan` without the dashes, and `model`");
    } else if (has(name)) {
      add(node.line, text(name, " stands below [flags] and below [axes]"), "leave one of them out");
    } else {
      return true;
    }
    return false;
  }

  std::optional<std::string> word_of(const std::string& name, const TomlNode& node) {
    std::optional<std::string> word;
    if (words_.at(name) && node.is(TomlKind::kBool)) word = node.integer != 0 ? "true" : "false";
    if (!words_.at(name)) {
      if (node.is(TomlKind::kText)) word = node.text;
      if (node.is(TomlKind::kInteger)) word = std::to_string(node.integer);
      if (node.is(TomlKind::kReal)) word = wire::write_value(node.real);
    }
    if (!word)
      add(node.line, text(name, " takes ", words_.at(name) ? "true or false" : "a text or a number"),
          "see `graphpipe plan --help`");
    return word;
  }

  /// A list is the flag several times.
  void read_flag(const std::string& name, const TomlNode& node) {
    const std::span<const TomlNode> each = node.is(TomlKind::kList) ? node.list : std::span(&node, 1);
    for (const TomlNode& one : each)
      if (std::optional<std::string> word = word_of(name, one)) sweep_.flags.emplace_back(name, *std::move(word));
  }

  void read_axis(const std::string& name, const TomlNode& node) {
    if (node.list.empty()) return add(node.line, name + " has no list of values", "write a list such as [2, 4, 8]");
    SweepAxis axis{.name = name, .values = {}};
    for (const TomlNode& each : node.list) {
      std::optional<std::string> word = word_of(name, each);
      if (!word) return;
      if (std::ranges::find(axis.values, *word) != axis.values.end())
        return add(each.line, text(quoted(ModelText(*word)), " stands there twice"), "leave one of them out");
      axis.values.push_back(*std::move(word));
    }
    sweep_.axes.push_back(std::move(axis));
  }

  void read_plot(const std::string& name, const TomlNode& node) {
    std::string* const member = name == "x"      ? &sweep_.plot.x
                                : name == "y"    ? &sweep_.plot.y
                                : name == "line" ? &sweep_.plot.line
                                                 : nullptr;
    if (member == nullptr || !node.is(TomlKind::kText))
      return add(node.line, text(quoted(ModelText(name)), " is no setting of a plot, or no text"),
                 "a plot has x, y and line, texts all of them");
    *member = node.text;
    plot_line_ = node.line;
  }

  void check_plot() {
    if (plot_line_ == 0) return;
    for (PlotProblem& problem : plot_problems(sweep_))
      add(plot_line_, std::move(problem.message), std::move(problem.hint));
  }

  const std::string& path_;
  const std::map<std::string, bool> words_ = plan_words();
  Sweep sweep_;
  Diagnostics problems_;
  int64_t plot_line_ = 0;
};

}  // namespace

Result<Sweep> read_sweep(const std::string& path) {
  GP_TRY(const TomlNode file, read_toml(path));
  return SweepReader(path).read(file);
}

Status plot_as_asked(const std::string& words, Sweep& sweep) {
  const std::vector<std::string_view> names = split(words, ",");
  if (names.size() < 2 || names.size() > 3)
    return usage("--plot " + words, "it takes two names or three", "for example --plot devices,simulated_step,planner");
  sweep.plot = {.x = std::string(names[0]), .y = std::string(names[1]), .line = ""};
  if (names.size() == 3) sweep.plot.line = names[2];
  for (const PlotProblem& problem : plot_problems(sweep))
    return usage("--plot " + words, problem.message, problem.hint);
  return Ok{};
}

std::vector<std::string> sweep_columns() {
  return {"simulated_step", "steady_step", "bound",       "gap",           "idle_fraction",
          "peak_bytes",     "stage_count", "micro_batch", "search_seconds"};
}

}  // namespace graphpipe::driver
