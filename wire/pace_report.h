#pragma once
// What rank 0 of a paced run prints on stdout, and `graphpipe run --pace` reads: one line for each number. std only.

#include <optional>
#include <string>
#include <vector>

namespace graphpipe::wire {

/// All is of this machine's clock. What is "of a step" is the mean over those that count.
struct PaceReport {
  /// Seconds of each step that counts, from the start that all ranks agree on to the last rank's end.
  std::vector<double> steps;
  /// Seconds by which the pauses of a step were too long, mean over the ranks; and how many pauses all ranks had.
  double late = 0, pauses = 0;
  /// Seconds that all ranks together computed in a step.
  double processor = 0;
  /// Bytes that all ranks together sent to others in a step.
  double sent = 0;
  /// One word.
  std::string transport;
  bool operator==(const PaceReport&) const = default;
};

std::string print_pace_report(const PaceReport& report);
/// None where the text is not what print_pace_report wrote: a line is unknown, missing, or there twice, or a number is
/// negative or not finite.
std::optional<PaceReport> parse_pace_report(const std::string& text);

}  // namespace graphpipe::wire
