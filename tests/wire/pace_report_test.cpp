// The report of a paced run: what is printed reads back, and nothing else does.

#include "wire/pace_report.h"

#include <doctest/doctest.h>

#include <limits>

namespace graphpipe::wire {
namespace {

PaceReport small_report() {
  return {.steps = {1.0 / 3, 2e-9},
          .late = 1e-5,
          .pauses = 12,
          .processor = 0.25,
          .sent = 123456789012345,
          .transport = "shm"};
}

TEST_CASE("a report of a paced run reads back as it was printed") {
  for (const PaceReport& report : {small_report(), PaceReport{.transport = "tcp"}}) {
    const std::optional<PaceReport> read = parse_pace_report(print_pace_report(report));
    REQUIRE(read);
    CHECK(*read == report);
  }
}

TEST_CASE("lines that are unknown, missing or there twice are refused") {
  const std::string text = print_pace_report(small_report());
  CHECK(parse_pace_report(text + "step 1\n"));
  for (const char* more : {"step\n", "step 1 2\n", "step x\n", "step -1\n", "step inf\n", "late 0 0\n", "sent 1\n",
                           "transport shm\n", "unknown 1\n", "\n"})
    CHECK(!parse_pace_report(text + more));
  for (size_t line = text.find("late"); line < text.size(); line = text.find('\n', line) + 1) {
    std::string shorter = text;
    shorter.erase(line, text.find('\n', line) + 1 - line);
    CHECK(!parse_pace_report(shorter));
  }
  CHECK(!parse_pace_report(""));
}

TEST_CASE("numbers that are none are refused") {
  PaceReport report = small_report();
  report.sent = std::numeric_limits<double>::quiet_NaN();
  CHECK(!parse_pace_report(print_pace_report(report)));
}

}  // namespace
}  // namespace graphpipe::wire
