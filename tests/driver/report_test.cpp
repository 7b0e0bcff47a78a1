#include "driver/report/report.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>

#include "driver/report/search_line.h"
#include "support/units.h"

using namespace graphpipe;
using namespace graphpipe::driver;

namespace {

Diagnostic note(std::string origin, std::string message, Severity severity = Severity::kNote) {
  return {.code = Code::kMixesSamples,
          .severity = severity,
          .origin = ModelText(std::move(origin)),
          .message = std::move(message),
          .hint = "a cure"};
}

}  // namespace

TEST_CASE("numbers for people have three digits, never an exponent, and read back within half a digit") {
  std::mt19937_64 random(1);
  struct Kind {
    std::string (*shown)(double);
    Units units;
    double low, high;  // powers of ten
  };
  for (const Kind& kind :
       {Kind{human_bytes, {.base = 1024, .first = 1, .names = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}}, 0, 18},
        Kind{human_seconds, seconds_units(), -9, 6}}) {
    std::uniform_real_distribution<double> exponent(kind.low, kind.high);
    for (int i = 0; i < 10'000; ++i) {
      const double number = std::pow(10, exponent(random));
      std::istringstream words(kind.shown(number));
      CAPTURE(words.str());
      std::string digits, unit;
      words >> digits >> unit;
      CHECK(digits.find('e') == std::string::npos);
      const auto named = std::ranges::find(kind.units.names, unit);
      REQUIRE(named != kind.units.names.end());
      const double scale = kind.units.first * std::pow(kind.units.base, named - kind.units.names.begin());
      CHECK(std::stod(digits) * scale == doctest::Approx(number).epsilon(0.0051));
    }
  }
  CHECK(human_bytes(1023 * 1024) == "0.999 MiB");
  CHECK(human_bytes(999) == "999 B");
  CHECK(human_seconds(0.9999) == "1 s");
  CHECK(human_seconds(0) == "0 s");
  CHECK(human_seconds(1234) == "1234 s");
  CHECK(human_count(9.6e10) == "96 G");
}

TEST_CASE("notes that differ in their place only are one with a count; errors are never joined") {
  const Diagnostics notes = {note("a", "mixes"),
                             note("b", "other"),
                             note("c", "mixes"),
                             note("d", "mixes"),
                             note("e", "wrong", Severity::kError),
                             note("f", "wrong", Severity::kError)};
  const Diagnostics kinds = one_of_each_kind(notes);
  REQUIRE(kinds.size() == 4);
  CHECK(kinds[0].origin == ModelText("a"));
  CHECK(kinds[0].message == "3 times, this one first: mixes");
  CHECK(to_line(kinds[1]) == to_line(notes[1]));
  CHECK(to_line(kinds[2]) == to_line(notes[4]));
  CHECK(to_line(kinds[3]) == to_line(notes[5]));
  CHECK(one_of_each_kind(kinds).size() == kinds.size());
}

TEST_CASE("a column has one unit, in which its smallest number is at least one") {
  const Column column(seconds_units(), {4.61e-4, 1.2034, 0, 5.87e-4});
  CHECK(column.heading("step") == "step, us");
  CHECK(column.cell(4.61e-4) == "461");
  CHECK(column.cell(1.2034) == "1203400");
  CHECK(column.cell(0) == "-");
  const Column bytes(byte_units(), {2048 + 512, 1 << 20});
  CHECK(bytes.heading("peak") == "peak, KiB");
  CHECK(bytes.cell(2048 + 512) == "2.50");
  CHECK(Column(seconds_units(), {}).cell(0) == "-");
}

TEST_CASE("a search that takes long says for how long, and what it has found") {
  CHECK(search_words(2.2, 0, kInfinity) == "2 s; Ctrl-C ends it");
  CHECK(search_words(12, 1, kInfinity) == "12 s, 1 plan; Ctrl-C ends it");
  CHECK(search_words(12, 143, 0.0772) == "12 s, 143 plans, best step 77.2 ms; Ctrl-C ends it");
  CHECK(search_words(86'400, 1'234'567, 0.123456).size() <= 60);  // what a line of Progress shows
}
