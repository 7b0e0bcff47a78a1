#include "wire/pace_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <locale>
#include <set>
#include <sstream>

namespace graphpipe::wire {
namespace {

constexpr const char* kStepLine = "step";
constexpr const char* kLateLine = "late";
constexpr const char* kProcessorLine = "processor";
constexpr const char* kSentLine = "sent";
constexpr const char* kTransportLine = "transport";
/// Lines that a report has once.
constexpr size_t kSingleLines = 4;

bool read_amount(std::istream& words, double& amount) {
  return words >> amount && std::isfinite(amount) && amount >= 0;
}

bool read_report_line(const std::string& kind, std::istream& words, PaceReport& report) {
  if (kind == kStepLine) return read_amount(words, report.steps.emplace_back());
  if (kind == kLateLine) return read_amount(words, report.late) && read_amount(words, report.pauses);
  if (kind == kProcessorLine) return read_amount(words, report.processor);
  if (kind == kSentLine) return read_amount(words, report.sent);
  return kind == kTransportLine && words >> report.transport;
}

}  // namespace

std::string print_pace_report(const PaceReport& report) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(std::numeric_limits<double>::max_digits10);
  for (const double step : report.steps) out << kStepLine << ' ' << step << '\n';
  out << kLateLine << ' ' << report.late << ' ' << report.pauses << '\n';
  out << kProcessorLine << ' ' << report.processor << '\n';
  out << kSentLine << ' ' << report.sent << '\n';
  out << kTransportLine << ' ' << report.transport << '\n';
  return out.str();
}

std::optional<PaceReport> parse_pace_report(const std::string& text) {
  PaceReport report;
  std::istringstream lines(text);
  std::set<std::string> single;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    words.imbue(std::locale::classic());
    std::string kind;
    if (!(words >> kind) || !read_report_line(kind, words, report) || !(words >> std::ws).eof()) return std::nullopt;
    if (kind != kStepLine && !single.insert(kind).second) return std::nullopt;
  }
  if (single.size() != kSingleLines) return std::nullopt;
  return report;
}

}  // namespace graphpipe::wire
