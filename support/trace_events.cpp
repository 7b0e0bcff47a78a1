#include "support/trace_events.h"

#include <algorithm>
#include <cstdio>

namespace graphpipe {
namespace {

// Lanes are numbered through over all kinds.
constexpr int kMaxLanesOfKind = 1000;
constexpr std::string_view kHead = "{\"traceEvents\":[\n";
constexpr std::string_view kTail = "\n],\"displayTimeUnit\":\"ns\"}\n";

std::string framed(std::string_view events) {
  std::string out(kHead);
  out.append(events);
  return out.append(kTail);
}

}  // namespace

void TraceEvents::name_process(size_t process, const std::string& name, size_t order) {
  add("M", process, 0, 0, "\"name\":\"process_name\",\"args\":{\"name\":\"" + name + "\"}");
  add("M", process, 0, 0, "\"name\":\"process_sort_index\",\"args\":{\"sort_index\":" + std::to_string(order) + "}");
}

void TraceEvents::label_process(size_t process, const std::string& label) {
  add("M", process, 0, 0, "\"name\":\"process_labels\",\"args\":{\"labels\":\"" + label + "\"}");
}

int TraceEvents::free_lane(size_t process, TraceKind kind, int64_t start, int64_t end) {
  std::vector<int64_t>& lanes = busy_until_[{process, kind.number}];
  const auto free = std::ranges::find_if(lanes, [&](int64_t until) { return until <= start; });
  const auto index = static_cast<int>(free - lanes.begin());
  const int lane = kind.number * kMaxLanesOfKind + std::min(index, kMaxLanesOfKind - 1);
  if (free != lanes.end()) {
    *free = end;
    return lane;
  }
  lanes.push_back(end);
  const std::string name =
      index == 0 ? std::string(kind.name) : std::string(kind.name) + " " + std::to_string(index + 1);
  add("M", process, lane, 0, "\"name\":\"thread_name\",\"args\":{\"name\":\"" + name + "\"}");
  return lane;
}

TraceSpan TraceEvents::span(size_t process, TraceKind kind, const std::string& name, int64_t start, int64_t end,
                            const std::string& arguments) {
  const int lane = free_lane(process, kind, start, end);
  add("X", process, lane, start,
      "\"name\":\"" + name + "\",\"dur\":" + time(end - start) + ",\"args\":{" + arguments + "}");
  return {process, lane, start, end};
}

// A viewer ties each end to the span that it lies in; the end of a span is no longer in it.
void TraceEvents::arrow(const TraceSpan& from, const TraceSpan& to, size_t number) {
  arrow_end("s", from, from.start, number);
  arrow_end("f", to, std::max({from.start, to.start, to.end - 1}), number);
}

void TraceEvents::arrow_end(const char* phase, const TraceSpan& span, int64_t at, size_t number) {
  add(phase, span.process, span.lane, at,
      "\"name\":\"message\",\"cat\":\"message\",\"bp\":\"e\",\"id\":" + std::to_string(number));
}

void TraceEvents::counter(size_t process, int64_t at, const std::string& name, int64_t value) {
  add("C", process, 0, at, "\"name\":\"" + name + "\",\"args\":{\"bytes\":" + std::to_string(value) + "}");
}

std::string TraceEvents::file() const { return framed(events_); }

std::string TraceEvents::time(int64_t units) const {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.3f", static_cast<double>(units) * scale_);
  return buffer;
}

void TraceEvents::add(const char* phase, size_t process, int lane, int64_t at, const std::string& rest) {
  if (!events_.empty()) events_ += ",\n";
  events_ += "{\"ph\":\"" + std::string(phase) + "\",\"pid\":" + std::to_string(process) +
             ",\"tid\":" + std::to_string(lane) + ",\"ts\":" + time(at) + "," + rest + "}";
}

std::string_view events_of_trace_file(std::string_view file) {
  if (!file.starts_with(kHead) || !file.ends_with(kTail) || file.size() < kHead.size() + kTail.size()) return {};
  return file.substr(kHead.size(), file.size() - kHead.size() - kTail.size());
}

std::string join_trace_files(std::string_view first, std::string_view second) {
  const std::string_view a = events_of_trace_file(first), b = events_of_trace_file(second);
  std::string events(a);
  if (!a.empty() && !b.empty()) events.append(",\n");
  events.append(b);
  return framed(events);
}

}  // namespace graphpipe
