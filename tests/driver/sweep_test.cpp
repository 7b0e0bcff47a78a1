// The cells of a sweep, and its results as a table and as a picture.

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "driver/sweep/sweep_output.h"
#include "tests/driver/ask.h"

using namespace graphpipe;
using namespace graphpipe::driver;
using graphpipe::tests::holds;

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

}  // namespace

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

}  // namespace sweep_test
