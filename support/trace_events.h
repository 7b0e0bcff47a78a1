#pragma once
// Chrome's trace event format (read by Perfetto and chrome://tracing), as text: processes with lanes, spans, arrows and
// counters. Names and arguments are put into the file as they are: letters, digits, blanks and marks that JSON strings
// need not escape.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace graphpipe {

/// A kind of spans in a process; kinds are shown in the order of their numbers.
struct TraceKind {
  int number = 0;
  const char* name = "";
};

/// Where a span was drawn.
struct TraceSpan {
  size_t process = 0;
  int lane = 0;
  int64_t start = 0, end = 0;
};

class TraceEvents {
 public:
  /// Times are whole units, this many of them in a microsecond.
  explicit TraceEvents(double units_per_microsecond) : scale_(1 / units_per_microsecond) {}

  /// `order` says where viewers put the process among the others.
  void name_process(size_t process, const std::string& name, size_t order);
  /// What viewers put beside the process's name.
  void label_process(size_t process, const std::string& label);
  /// Draws a span on the first lane of its kind that is free at its start, since viewers drop what overlaps on a lane.
  /// `arguments`: the members of a JSON object, such as "\"stage\":1".
  TraceSpan span(size_t process, TraceKind kind, const std::string& name, int64_t start, int64_t end,
                 const std::string& arguments);
  /// From the start of one span to the end of another, both drawn before.
  void arrow(const TraceSpan& from, const TraceSpan& to, size_t number);
  void counter(size_t process, int64_t at, const std::string& name, int64_t value);

  /// A whole file.
  std::string file() const;

 private:
  int free_lane(size_t process, TraceKind kind, int64_t start, int64_t end);
  void arrow_end(const char* phase, const TraceSpan& span, int64_t at, size_t number);
  std::string time(int64_t units) const;
  void add(const char* phase, size_t process, int lane, int64_t at, const std::string& rest);

  double scale_;
  std::string events_;
  std::map<std::pair<size_t, int>, std::vector<int64_t>> busy_until_;  // by process and kind, of each of its lanes
};

/// The events of a file that TraceEvents wrote: what stands between its brackets. Empty where the text is not framed
/// like one.
std::string_view events_of_trace_file(std::string_view file);
/// One file with the events of two. Needs: different process numbers.
std::string join_trace_files(std::string_view first, std::string_view second);

}  // namespace graphpipe
