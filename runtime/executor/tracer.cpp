#include "runtime/executor/tracer.h"

#include <algorithm>
#include <fstream>
#include <map>

#include "support/trace_events.h"
#include "wire/action_text.h"

namespace graphpipe::runtime {
namespace {

using wire::ActionOp;
using wire::ActionRow;

/// Offset of process numbers from those of simulated devices in a joined file.
constexpr size_t kFirstProcess = 1'000'000;
constexpr size_t kFirstArrow = size_t{1} << 32;

TraceKind kind_of(ActionOp op) {
  if (wire::is_send(op) || op == ActionOp::kSlice) return {1, "send"};
  if (wire::is_receive(op) || op == ActionOp::kConcatenate) return {2, "receive"};
  if (op == ActionOp::kReduceGradient || op == ActionOp::kNorm) return {3, "collective"};
  return {0, "compute"};
}

/// Identifies the clock of a rank's times: ranks on one host since the same boot share it.
struct HostClock {
  int64_t zero = 0;
  uint64_t host = 0;
};

/// What a rank sends before its events.
struct TraceHeader {
  HostClock clock;
  int64_t dropped = 0;
};

uint64_t host_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return std::hash<std::string>()(id);
}

/// Step, backward, edge, replicas of both ends: messages of one key arrive in the order in which they are sent.
using MessageKey = std::tuple<int64_t, bool, int32_t, int32_t, int32_t>;

MessageKey key_of(const TraceEvent& event) {
  const ActionRow& row = event.row;
  const bool send = wire::is_send(row.op);
  const bool backward = row.op == ActionOp::kSendBackward || row.op == ActionOp::kReceiveBackward;
  return {event.step, backward, row.edge, send ? row.replica : row.peer_replica, send ? row.peer_replica : row.replica};
}

class Writer {
 public:
  explicit Writer(const PlanTable& plan) : plan_(plan) {}

  void add_rank(size_t rank, const std::vector<TraceEvent>& events, int64_t shift, int64_t dropped) {
    const size_t process = kFirstProcess + rank;
    out_.name_process(process, "device " + std::to_string(rank) + " executed", 2 * rank + 1);
    if (dropped > 0) out_.label_process(process, "later events dropped: " + std::to_string(dropped));
    for (const TraceEvent& event : events) {
      const int64_t start = event.start + shift, end = event.end + shift;
      const TraceKind kind = kind_of(event.row.op);
      const TraceSpan span = out_.span(process, kind, wire::action_text(event.row), start, end, arguments(event));
      if (wire::is_send(event.row.op)) sends_[key_of(event)].push_back(span);
      if (wire::is_receive(event.row.op)) receives_[key_of(event)].push_back(span);
      if (kind.number != 0) continue;
      out_.counter(process, start, "memory", event.bytes_before);
      out_.counter(process, end, "memory", event.bytes_after);
    }
  }

  std::string finish() {
    size_t number = kFirstArrow;
    for (const auto& [key, sends] : sends_) {
      const std::vector<TraceSpan>& receives = receives_[key];
      for (size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) out_.arrow(sends[i], receives[i], number++);
    }
    return out_.file();
  }

 private:
  std::string arguments(const TraceEvent& event) const {
    const auto stage = static_cast<size_t>(event.row.stage);
    const int64_t size = stage < plan_.stages.size() ? std::max<int64_t>(1, plan_.stages[stage].micro_batch) : 1;
    std::string out = "\"stage\":" + std::to_string(event.row.stage);
    out += ",\"micro_batch\":" + std::to_string(event.row.range.first / size);
    out += ",\"version\":" + std::to_string(event.row.version);
    return out + ",\"step\":" + std::to_string(event.step + 1);
  }

  const PlanTable& plan_;
  TraceEvents out_{1000};
  std::map<MessageKey, std::vector<TraceSpan>> sends_, receives_;
};

}  // namespace

size_t max_events(int64_t steps, size_t actions) {
  const bool all_fit = static_cast<size_t>(steps) < kMaxEvents / std::max<size_t>(1, actions);
  return all_fit ? static_cast<size_t>(steps) * actions : kMaxEvents;
}

Tracer::Tracer(size_t capacity) : zero_(std::chrono::steady_clock::now()), capacity_(capacity) {
  events_.reserve(capacity);
}

int64_t Tracer::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - zero_).count();
}

void Tracer::begin(const wire::ActionRow& row, int64_t step, int64_t bytes) {
  current_ = {.row = row, .step = step, .start = now(), .bytes_before = bytes};
}

void Tracer::restart() { current_.start = now(); }

size_t Tracer::end(int64_t bytes) {
  current_.end = now();
  current_.bytes_after = bytes;
  if (events_.size() == capacity_) {
    ++dropped_;
    return capacity_;
  }
  events_.push_back(current_);
  return events_.size() - 1;
}

void Tracer::finish(size_t event) {
  if (event < events_.size()) events_[event].end = now();
}

std::optional<CollectedTrace> Tracer::collect(Gather& gather, const PlanTable& plan) const {
  const int64_t zero = std::chrono::duration_cast<std::chrono::nanoseconds>(zero_.time_since_epoch()).count();
  const TraceHeader own{.clock = {zero, host_id()}, .dropped = dropped_};
  const std::vector<std::vector<std::byte>> headers = gather.collect(to_bytes(std::vector<TraceHeader>{own}));
  const std::vector<std::vector<std::byte>> events = gather.collect(to_bytes(events_));
  if (events.empty()) return std::nullopt;
  Writer writer(plan);
  int64_t dropped = 0;
  for (size_t rank = 0; rank < events.size(); ++rank) {
    const TraceHeader header = from_bytes<TraceHeader>(headers[rank]).at(0);
    dropped += header.dropped;
    // Ranks on other hosts all began at the barrier before the first step: as close as messages can tell.
    const int64_t shift = header.clock.host == own.clock.host ? header.clock.zero - own.clock.zero : 0;
    writer.add_rank(rank, from_bytes<TraceEvent>(events[rank]), shift, header.dropped);
  }
  return CollectedTrace{.text = writer.finish(), .dropped = dropped};
}

}  // namespace graphpipe::runtime
