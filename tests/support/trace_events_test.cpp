#include "support/trace_events.h"

#include <doctest/doctest.h>

using namespace graphpipe;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a kind has as many lanes as its spans lie side by side, and a lane is named when it is first used") {
  TraceEvents events(1000);
  const TraceKind receive{2, "receive"}, send{1, "send"};
  const TraceSpan a = events.span(0, receive, "a", 0, 100, ""), b = events.span(0, receive, "b", 50, 60, "");
  const TraceSpan c = events.span(0, receive, "c", 60, 70, ""), d = events.span(0, receive, "d", 100, 200, "");
  CHECK(a.lane != b.lane);
  CHECK(c.lane == b.lane);
  CHECK(d.lane == a.lane);
  CHECK(events.span(0, send, "e", 0, 100, "").lane < a.lane);
  CHECK(events.span(1, receive, "f", 0, 100, "").lane == a.lane);
  CHECK(count(events.file(), "\"thread_name\"") == 4);
  CHECK(count(events.file(), "\"receive 2\"") == 1);
}

TEST_CASE("an arrow ends within its span, and not before it begins") {
  TraceEvents events(1000);
  const TraceKind send{1, "send"}, receive{2, "receive"};
  const TraceSpan sent = events.span(0, send, "s", 3000, 5000, "");
  events.arrow(sent, events.span(1, receive, "r", 1000, 5000, ""), 7);
  // A message that takes no time.
  events.arrow(sent, events.span(1, receive, "r", 1000, 3000, ""), 8);
  const std::string file = events.file();
  CHECK(count(file, "\"ts\":4.999,\"name\":\"message\",\"cat\":\"message\",\"bp\":\"e\",\"id\":7}") == 1);
  CHECK(count(file, "\"ts\":3.000,\"name\":\"message\",\"cat\":\"message\",\"bp\":\"e\",\"id\":8}") == 2);
}
