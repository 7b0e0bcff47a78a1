#pragma once
// How verbs talk: the result goes to stdout, everything else to stderr.

#include <string>
#include <string_view>
#include <vector>

#include "driver/cli/options.h"
#include "driver/report/json_object.h"
#include "support/result.h"

namespace graphpipe::driver {

/// Prints problems to stderr, as a verb's.
void print_problems(std::string_view verb, const Diagnostics& problems);

/// Prints problems to stderr (with --json also a flat object to stdout) and returns the exit code they lead to.
int report_problems(const Options& options, std::string_view verb, const Diagnostics& problems);

/// Whether what a verb draws goes to a terminal, which shows colours.
bool takes_color(const Options& options);

/// The exit code of a verb that has its answer: interrupted, partial, or ok.
int end_code(bool complete);

/// Notes and warnings that differ in their place only are one, in the order of their first: it names the first place,
/// and its message begins with how often there is one. Errors stay as they are.
Diagnostics one_of_each_kind(const Diagnostics& diagnostics);

/// Prints warnings and notes to stderr, one of each kind, unless --quiet.
void report_notes(const Options& options, const Diagnostics& notes);
/// The same of a run, which has no answer that could hold them: warnings also where it is quiet.
void report_run_notes(const Options& options, const Diagnostics& notes);

/// Prints the verb's object, completed with the envelope: schema, tool_version, complete, diagnostics. Not `complete`
/// is an answer that a time limit or an interrupt has cut short, and what is printed in place of an answer.
void print_json(std::string_view verb, JsonObject object, const Diagnostics& diagnostics, bool complete = true);

/// "12.3 MiB", "4.56 ms": for people, three digits.
std::string human_bytes(double bytes);
/// "96 G": powers of a thousand.
std::string human_count(double count);
std::string human_seconds(double seconds);

/// Units of a quantity, each `base` times the one before, the first one for 1.
struct Units {
  double base = 1000, first = 1;
  std::vector<const char*> names;
};
Units seconds_units();
Units byte_units();

/// A column of numbers in one unit: that in which the smallest of them is at least one.
class Column {
 public:
  /// Zeros are no numbers.
  Column(const Units& units, const std::vector<double>& values);
  /// "step, us"
  std::string heading(std::string_view name) const;
  /// "-" for zero.
  std::string cell(double value) const;

 private:
  std::string unit_;
  double scale_ = 1;
  int decimals_ = 0;
};

/// A table with aligned columns; the first row is the heading. Columns of numbers are aligned to the right.
std::string table(const std::vector<std::vector<std::string>>& rows);

/// One line on stderr that is rewritten while something takes long; silent unless stderr is a terminal.
class Progress {
 public:
  Progress(const Options& options, std::string title);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `fraction` in [0, 1], or negative where it is not known.
  void update(double fraction, std::string_view what);
  bool is_shown() const { return active_; }

 private:
  std::string title_;
  bool shown_ = false;
  bool active_ = false;
};

}  // namespace graphpipe::driver
