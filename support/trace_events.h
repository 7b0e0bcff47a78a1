#pragma once
// Chrome's trace event format (read by Perfetto and chrome://tracing), as text: processes with lanes, spans, arrows and
// counters. Names and arguments are put into the file as they are: letters, digits, blanks and marks that JSON strings
// need not escape.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace graphpipe {

class TraceEvents {
 public:
  /// Times are whole units, this many of them in a microsecond.
  explicit TraceEvents(double units_per_microsecond) : scale_(1 / units_per_microsecond) {}

  /// `order` says where viewers put the process among the others.
  void name_process(size_t process, const std::string& name, size_t order);
  void name_lane(size_t process, int lane, const std::string& name);
  /// `arguments`: the members of a JSON object, such as "\"stage\":1".
  void span(size_t process, int lane, const std::string& name, int64_t start, int64_t end,
            const std::string& arguments);
  /// One end of an arrow; begin and end carry the same number, and lie in spans.
  void arrow(bool begin, size_t process, int lane, int64_t at, size_t number);
  void counter(size_t process, int64_t at, const std::string& name, int64_t value);

  /// A whole file.
  std::string file() const;

 private:
  std::string time(int64_t units) const;
  void add(const char* phase, size_t process, int lane, int64_t at, const std::string& rest);

  double scale_;
  std::string events_;
};

/// The events of a file that TraceEvents wrote: what stands between its brackets. Empty where the text is not framed
/// like one.
std::string_view events_of_trace_file(std::string_view file);
/// One file with the events of two. Needs: different process numbers.
std::string join_trace_files(std::string_view first, std::string_view second);

}  // namespace graphpipe
