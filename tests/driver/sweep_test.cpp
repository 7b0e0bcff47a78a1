// The cells of a sweep, and its results as a table and as a picture.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/cli/manual.h"
#include "driver/launch/calibration.h"
#include "driver/report/html/html.h"
#include "driver/sweep/sweep_output.h"
#include "files/cluster.h"
#include "tests/driver/ask.h"
#include "tests/driver/fake_runtime.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::driver;
using graphpipe::tests::FakeRuntime;
using graphpipe::tests::holds;
using graphpipe::tests::Variable;

namespace sweep_test {
namespace {

/// The table of a sweep over one axis, a line for each of its values.
std::string csv_of(const std::string& axis, const std::vector<std::string>& values, const SweepRow& row) {
  const Sweep sweep{.flags = {}, .axes = {{.name = axis, .values = values}}, .plot = {}};
  std::vector<SweepCell> cells;
  std::map<std::string, SweepRow> rows;
  for (const std::string& value : values) {
    cells.push_back({.values = {value}, .words = {}, .key = value});
    rows[value] = row;
  }
  return sweep_csv(sweep, cells, rows);
}

using Flags = std::vector<std::pair<std::string, std::string>>;

/// A folder with a model, and the keys of plans of it.
struct SweepInputs : graphpipe::testing::TemporaryFolder {
  SweepInputs() { write("model.onnx", "a model"); }
  Sweep sweep(const Flags& flags = {}) const {
    Sweep sweep{.flags = {{"model", *this / "model.onnx"}}, .axes = {}, .plot = {}};
    sweep.flags.insert(sweep.flags.end(), flags.begin(), flags.end());
    return sweep;
  }
  SweepCell cell(const Flags& flags = {}) const {
    const Result<std::vector<SweepCell>> cells = cells_of(sweep(flags));
    REQUIRE(cells.ok());
    REQUIRE(cells->size() == 1);
    return cells->front();
  }
  std::string key(const Flags& flags = {}) const { return cell(flags).key; }
};

struct Entry {
  double left = 0, text = 0, bottom = 0;  // of the sample, of the name
  std::string style, name;
};

struct Picture {
  std::string svg;
  double width = 0, height = 0;
  std::vector<Entry> entries;  // of the legend
};

/// The picture of a sweep with so many lines in each panel, whose names begin with `name`.
Picture picture_of(size_t lines, const std::string& name, size_t panels) {
  Sweep sweep{.axes = {{.name = "batch", .values = {}},
                       {.name = "devices", .values = {"1", "2"}},
                       {.name = "planner", .values = {}}},
              .plot = {.x = "devices", .y = "simulated_step", .line = "planner"}};
  for (size_t i = 0; i < panels; ++i) sweep.axes[0].values.push_back(std::to_string(i));
  for (size_t i = 0; i < lines; ++i) sweep.axes[2].values.push_back(name + std::to_string(i));
  std::vector<SweepCell> cells;
  std::map<std::string, SweepRow> rows;
  for (const std::string& batch : sweep.axes[0].values)
    for (const std::string& devices : sweep.axes[1].values)
      for (const std::string& planner : sweep.axes[2].values) {
        const std::string key = batch + " " + devices + " " + planner;
        cells.push_back({.values = {batch, devices, planner}, .words = {}, .key = key});
        rows[key].numbers["simulated_step"] = 1;
      }
  Picture picture{.svg = sweep_svg(sweep, cells, rows)};
  std::smatch match;
  REQUIRE(std::regex_search(picture.svg, match, std::regex("viewBox=\"0 0 ([0-9.]+) ([0-9.]+)\"")));
  picture.width = std::stod(match[1]);
  picture.height = std::stod(match[2]);
  const std::regex entry(
      "<line x1=\"([^\"]+)\"[^>]*(stroke=.*) stroke-width[^>]*/>\n<text x=\"([^\"]+)\" y=\"([^\"]+)\">([^<]*)<");
  for (std::sregex_iterator i(picture.svg.begin(), picture.svg.end(), entry), end; i != end; ++i)
    picture.entries.push_back({.left = std::stod((*i)[1]),
                               .text = std::stod((*i)[3]),
                               .bottom = std::stod((*i)[4]),
                               .style = (*i)[2],
                               .name = (*i)[5]});
  return picture;
}

}  // namespace

TEST_CASE("a plan that does not fit counts as none, and bounds of other numbers than the step are left out") {
  const auto row = [](const std::string& more) {
    const auto read = row_of(
        R"({"simulated_step": 0.25, "bound": 3, "gap": 0.5, "stages": [{}], "profile_format": "piper", )" + more + "}");
    REQUIRE(read.ok());
    return *read;
  };
  const SweepRow fits = row(R"("fits_memory": true, "unit": "s")");
  CHECK(fits.error.empty());
  CHECK(fits.numbers.at("simulated_step") == 0.25);
  CHECK(fits.numbers.at("bound") == 3);
  const SweepRow speed_up = row(R"("fits_memory": true, "unit": "speed-up")");
  CHECK(speed_up.numbers.at("simulated_step") == 0.25);
  CHECK_FALSE(speed_up.numbers.contains("bound"));
  CHECK_FALSE(speed_up.numbers.contains("gap"));
  const SweepRow too_large = row(R"("fits_memory": false, "unit": "s")");
  CHECK_FALSE(too_large.numbers.contains("simulated_step"));
  CHECK(too_large.error == "the plan does not fit the memory; without the limit its step takes 250 ms");
  CHECK(too_large.code == "no-feasible-plan");
}

TEST_CASE("a cell has another key where a file that it names has changed, whichever flag names it") {
  const SweepInputs inputs;
  std::set<std::string> flags;
  for (const ShownFlag& flag : flags_of(*std::ranges::find(all_commands(), "plan", &CommandEntry::name)))
    if (flag.value.starts_with("FILE")) flags.insert(flag.argument.empty() ? flag.long_names.front() : flag.argument);
  CHECK(flags == std::set<std::string>{"cluster", "config", "model", "order", "parameters", "plan", "profile"});
  for (const std::string& flag : flags) {
    CAPTURE(flag);
    const std::string file = flag == "model" ? "model.onnx" : "named.toml";
    inputs.write(file, "batch = 4\n");
    const auto key = [&] { return flag == "model" ? inputs.key() : inputs.key({{flag, inputs / file}}); };
    const std::string before = key();
    CHECK(key() == before);
    inputs.write(file, "batch = 8\n");
    CHECK(key() != before);
    inputs.write(file, "batch = 4\n");
    CHECK(key() == before);
  }
}

TEST_CASE("the files that a cell's config file names count, and words that are refused have a key too") {
  const SweepInputs inputs;
  inputs.write("order.csv", "0F0,0B0\n");
  inputs.write("flags.toml", "order = \"" + inputs / "order.csv" + "\"\n");
  const std::string before = inputs.key({{"config", inputs / "flags.toml"}});
  inputs.write("order.csv", "0F0\n");
  CHECK(inputs.key({{"config", inputs / "flags.toml"}}) != before);
  CHECK(inputs.key({{"planner", "grahpipe"}}) == inputs.key({{"planner", "grahpipe"}}));
  CHECK(inputs.key({{"planner", "grahpipe"}}) != inputs.key());
  inputs.write("flags.toml", "batch = \"many\"\n");
  const std::string refused = inputs.key({{"config", inputs / "flags.toml"}});
  inputs.write("flags.toml", "batch = \"few\"\n");
  CHECK(inputs.key({{"config", inputs / "flags.toml"}}) != refused);
}

TEST_CASE("of a compiled folder that --plan names, a cell's key has the plan file, as `plan` takes it") {
  const SweepInputs inputs;
  inputs.write("out/plan.json", "{}");
  inputs.write("out/manifest.json", "{}");
  const std::string before = inputs.key({{"plan", inputs / "out"}});
  inputs.write("out/manifest.json", "{ }");
  CHECK(inputs.key({{"plan", inputs / "out"}}) == before);
  inputs.write("out/plan.json", "{ }");
  CHECK(inputs.key({{"plan", inputs / "out"}}) != before);
}

TEST_CASE("at this machine's prices a calibration makes a key, and no key makes a calibration") {
  const FakeRuntime runtime;
  const SweepInputs inputs;
  const Flags here = {{"devices", "5"}}, named = {{"cluster", "default"}},
              profiled = {{"profile", inputs / "profile.json"}};
  const CalibrationRequest request{.processes = 2};  // two stand for more
  const std::string of_constants = inputs.key(named), of_profile = inputs.key(profiled), unmeasured = inputs.key(here);
  CHECK(inputs.cell(here).to_measure == request);
  CHECK_FALSE(inputs.cell(named).to_measure.has_value());
  CHECK_FALSE(inputs.cell(profiled).to_measure.has_value());
  CHECK(runtime.starts() == 0);

  REQUIRE(calibrate_machine(request).ok());
  const std::string measured = inputs.key(here);
  CHECK(measured != unmeasured);
  CHECK(inputs.key(here) == measured);
  CHECK_FALSE(inputs.cell(here).to_measure.has_value());
  CHECK(inputs.cell({{"threads", "2"}}).to_measure == CalibrationRequest{.threads = 2});

  ir::Cluster calibration = *kept_calibration(request);
  calibration.devices[ir::DeviceId(0u)].compute.count *= 2;
  std::ofstream(runtime.cache_file(), std::ios::trunc) << files::print_cluster(calibration);
  CHECK(inputs.key(here) != measured);
  CHECK(inputs.key(here) != unmeasured);
  CHECK(inputs.key(named) == of_constants);
  CHECK(inputs.key(profiled) == of_profile);
  CHECK(runtime.starts() == 1);
}

TEST_CASE("the file of GRAPHPIPE_CALIBRATION makes a key") {
  const FakeRuntime runtime;
  const SweepInputs inputs;
  const std::string unmeasured = inputs.key();
  const Variable variable("GRAPHPIPE_CALIBRATION", inputs / "mine.json");
  CHECK_FALSE(cells_of(inputs.sweep()).ok());
  inputs.write("mine.json", "{}");
  const std::string before = inputs.key();
  CHECK(before != unmeasured);
  CHECK_FALSE(inputs.cell().to_measure.has_value());
  inputs.write("mine.json", "{ }");
  CHECK(inputs.key() != before);
  CHECK(runtime.starts() == 0);
}

TEST_CASE("texts that spreadsheets would evaluate are marked as texts in table.csv; numbers stay numbers") {
  const SweepRow row{.numbers = {{"gap", -0.5}}, .limit = "+cmd|' /C calc'!A0", .error = "=HYPERLINK(\"x\",\"y\")"};
  const std::vector<std::string> values = {"=1+1", "+1+1", "-1+1",  "@SUM(A1)", "\t=1",
                                           "\r=1", "-2",   "-1e-3", "-inf",     "a=b"};
  const std::string csv = csv_of("freeze", values, row);
  for (const std::string line :
       {"'=1+1", "'+1+1", "'-1+1", "'@SUM(A1)", "'\t=1", "\"'\r=1\"", "-2", "-1e-3", "'-inf", "a=b"}) {
    CAPTURE(line);
    CHECK(holds(csv, "\r\n" + line + ","));
  }
  CHECK(holds(csv, ",-0.5,"));
  CHECK(holds(csv, ",'+cmd|' /C calc'!A0,"));
  CHECK(holds(csv, ",\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\"\r\n"));
}

TEST_CASE("every entry of a picture's legend lies within the picture, and the lines of all planners differ") {
  for (const size_t count : {1, 2, 5, 6, 15, 40}) {
    for (const std::string& name : {std::string("p"), std::string("max-throughput"), std::string(200, 'm')}) {
      for (const size_t panels : {1, 3}) {
        const Picture picture = picture_of(count, name, panels);
        CAPTURE(picture.svg);
        REQUIRE(picture.entries.size() == count);
        std::set<std::string> styles, dashes;
        std::set<std::pair<double, double>> places;
        for (const Entry& entry : picture.entries) {
          CHECK(entry.left >= 0);
          CHECK(entry.text > entry.left);
          CHECK(entry.text + text_width(entry.name, 12) <= picture.width);
          CHECK(entry.bottom - 12 >= 310);  // below the panels
          CHECK(entry.bottom + 3 <= picture.height);
          styles.insert(entry.style);
          dashes.insert(entry.style.substr(entry.style.find("dasharray")));
          places.insert({entry.left, entry.bottom});
        }
        CHECK(styles.size() == count);
        CHECK(dashes.size() == std::min<size_t>(count, 8));
        CHECK(places.size() == count);
      }
    }
  }
}

}  // namespace sweep_test
