#include "driver/report/run_report.h"

#include <charconv>
#include <limits>

namespace graphpipe::driver {

Result<std::vector<double>> report_numbers(std::string_view report, std::string_view field) {
  const Diagnostic malformed{.code = Code::kPeerFailed,
                             .message = text("the run's report has no list of numbers named ", field),
                             .hint = "the programs may be of another version; run `graphpipe build` again"};
  const std::string key = text('"', field, "\":");
  size_t at = report.find(key);
  if (at == std::string_view::npos) return malformed;
  at = report.find_first_not_of(' ', at + key.size());
  if (at == std::string_view::npos || report[at] != '[') return malformed;
  std::vector<double> numbers;
  for (++at; at < report.size() && report[at] != ']';) {
    if (report[at] == ' ' || report[at] == ',') {
      ++at;
    } else if (report.substr(at, 4) == "null") {
      numbers.push_back(std::numeric_limits<double>::quiet_NaN());
      at += 4;
    } else {
      double value = 0;
      const auto [end, error] = std::from_chars(report.data() + at, report.data() + report.size(), value);
      if (error != std::errc()) return malformed;
      numbers.push_back(value);
      at = static_cast<size_t>(end - report.data());
    }
  }
  if (at >= report.size()) return malformed;
  return numbers;
}

}  // namespace graphpipe::driver
