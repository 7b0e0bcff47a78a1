#include "ir/schedule.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "wire/action_text.h"

namespace graphpipe::ir {
namespace {

Diagnostic malformed(std::string message) {
  return Diagnostic{.code = Code::kMalformedFile,
                    .message = std::move(message),
                    .hint = "write actions as 2F[0,4) or 0SEND_F[0,4)e3p0s1, one device per line"};
}

std::string shown(std::string_view found) { return quoted(ModelText(std::string(found.substr(0, 80)))); }

/// Takes characters from the front of a text; every step says whether it found what it wanted.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}
  bool at_end() const { return rest_.empty(); }
  bool take(char wanted) {
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  template <typename Int>
  bool take_number(Int& number) {
    const char* begin = rest_.data();
    const auto [end, error] = std::from_chars(begin, begin + rest_.size(), number);
    if (error != std::errc()) return false;
    rest_.remove_prefix(static_cast<size_t>(end - begin));
    return true;
  }
  std::string_view take_capitals() {
    size_t length = 0;
    while (length < rest_.size() && ((rest_[length] >= 'A' && rest_[length] <= 'Z') || rest_[length] == '_')) ++length;
    const std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return taken;
  }

 private:
  std::string_view rest_;
};

std::optional<ActionOp> op_of_name(std::string_view name) {
  for (int op = 0; op < wire::kActionOpCount; ++op)
    if (name == action_name(static_cast<ActionOp>(op))) return static_cast<ActionOp>(op);
  return std::nullopt;
}

bool take_fields(Cursor& cursor, Action& action) {
  if (cursor.take('e') && !cursor.take_number(action.edge)) return false;
  if (cursor.take('p') && !cursor.take_number(action.peer_replica)) return false;
  if (cursor.take('s') && !cursor.take_number(action.slot)) return false;
  if (cursor.take('v') && !cursor.take_number(action.version)) return false;
  if (cursor.take('c')) {
    int stream = 0;
    if (!cursor.take_number(stream) || stream < 0 || stream > static_cast<int>(Stream::kCollective)) return false;
    action.stream = static_cast<Stream>(stream);
  }
  action.overlaps_next = cursor.take('o');
  return cursor.at_end();
}

bool take_action(Cursor cursor, Action& action) {
  if (!cursor.take_number(action.stage)) return false;
  if (cursor.take('r') && !cursor.take_number(action.replica)) return false;
  const std::optional<ActionOp> op = op_of_name(cursor.take_capitals());
  if (!op) return false;
  action.op = *op;
  action.stream = stream_of(*op);
  if (!cursor.take('[') || !cursor.take_number(action.range.first)) return false;
  if (!cursor.take(',') || !cursor.take_number(action.range.last) || !cursor.take(')')) return false;
  return take_fields(cursor, action);
}

std::string_view take_line(std::string_view& text) {
  const size_t length = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  return line;
}

std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
  const size_t length = std::min(line.find_first_of(" \t\r"), line.size());
  const std::string_view word = line.substr(0, length);
  line.remove_prefix(length);
  return word;
}

/// Numbers from 0 on.
template <typename Int>
Result<std::vector<Int>> schedule_numbers(std::string_view line, std::string_view name) {
  std::vector<Int> numbers;
  for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
    Cursor cursor(word);
    Int number = 0;
    if (!cursor.take_number(number) || !cursor.at_end() || number < 0)
      return malformed(text(name, " is a number, found ", shown(word)));
    numbers.push_back(number);
  }
  return numbers;
}

Status parse_slots(std::string_view line, Schedule& schedule) {
  GP_TRY(const std::vector<int> counts, schedule_numbers<int>(line, "a slot count"));
  for (const int count : counts) schedule.slots.push_back(count);
  return Ok{};
}

Status parse_starts(std::string_view line, Schedule& schedule) {
  GP_TRY(const std::vector<int64_t> ticks, schedule_numbers<int64_t>(line, "a start"));
  for (const int64_t start : ticks) schedule.starts.push_back(Ticks(start));
  return Ok{};
}

Status parse_program(std::string_view line, Schedule& schedule) {
  const std::string_view head = take_word(line);
  Cursor cursor(head);
  uint32_t device = 0;
  if (!cursor.take_number(device) || !cursor.take(':') || !cursor.at_end())
    return malformed(text("expected 'device <number>:', found ", shown(head)));
  Program program{.device = DeviceId(device), .actions = {}};
  for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
    GP_TRY(Action action, parse_action(word));
    program.actions.push_back(action);
  }
  schedule.programs.push_back(std::move(program));
  return Ok{};
}

Status parse_line(std::string_view line, Schedule& schedule) {
  const std::string_view keyword = take_word(line);
  if (keyword == "slots") return parse_slots(line, schedule);
  if (keyword == "starts") return parse_starts(line, schedule);
  if (keyword == "device") return parse_program(line, schedule);
  if (keyword == "schedule") {
    const std::string_view policy = take_word(line);
    schedule.policy = policy == "-" ? std::string() : std::string(policy);
    return Ok{};
  }
  return malformed(text("expected 'schedule', 'slots', 'starts' or 'device', found ", shown(keyword)));
}

}  // namespace

bool is_asynchronous(const Schedule& schedule) {
  return std::any_of(schedule.programs.begin(), schedule.programs.end(), [](const Program& program) {
    return std::any_of(program.actions.begin(), program.actions.end(),
                       [](const Action& action) { return action.op == ActionOp::kStep && action.version > 1; });
  });
}

IdSet<StageId> undivided_backwards(const Schedule& schedule, size_t stages) {
  IdSet<StageId> divided(stages), undivided(stages);
  for (const Program& program : schedule.programs)
    for (const Action& action : program.actions)
      if (action.op == ActionOp::kInputGradient || action.op == ActionOp::kWeightGradient)
        divided.insert(StageId(static_cast<size_t>(action.stage)));
  for (const StageId stage : ids<StageId>(stages))
    if (!divided.contains(stage)) undivided.insert(stage);
  return undivided;
}

std::vector<bool> copying_steps(const Program& program) {
  std::vector<bool> copies(program.actions.size(), false);
  std::map<ReplicaKey, std::set<int64_t>> read_later;
  for (size_t i = program.actions.size(); i-- > 0;) {
    const Action& action = program.actions[i];
    std::set<int64_t>& read = read_later[replica_key(action)];
    if (is_compute(action.op)) read.insert(action.version);
    if (action.op == ActionOp::kStep) copies[i] = read.contains(int64_t{action.version} - 1);
  }
  return copies;
}

std::vector<int> held_versions(const Program& program) {
  const std::vector<bool> copies = copying_steps(program);
  std::vector<int> held;
  std::map<ReplicaKey, int> now;
  for (size_t i = 0; i < program.actions.size(); ++i) {
    int& count = now.emplace(replica_key(program.actions[i]), 1).first->second;
    if (copies[i]) ++count;
    if (program.actions[i].op == ActionOp::kFreeVersion) --count;
    held.push_back(count);
  }
  return held;
}

std::string print_action(const Action& action) { return wire::action_text(action); }

Result<Action> parse_action(std::string_view word) {
  Action action;
  if (!take_action(Cursor(word), action)) return malformed(text("not an action: ", shown(word)));
  return action;
}

std::string print_schedule(const Schedule& schedule) {
  std::string out = "schedule " + (schedule.policy.empty() ? std::string("-") : schedule.policy) + "\nslots";
  for (const int count : schedule.slots) out += " " + std::to_string(count);
  out += "\n";
  if (!schedule.starts.empty()) out += "starts";
  for (const Ticks start : schedule.starts) out += " " + std::to_string(start.count);
  if (!schedule.starts.empty()) out += "\n";
  for (const Program& program : schedule.programs) {
    out += "device " + std::to_string(program.device.index()) + ":";
    for (const Action& action : program.actions) out += " " + print_action(action);
    out += "\n";
  }
  return out;
}

Result<Schedule> parse_schedule(std::string_view source) {
  Schedule schedule;
  for (int number = 1; !source.empty(); ++number) {
    const std::string_view line = take_line(source);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Status status = parse_line(line, schedule);
    if (status.ok()) continue;
    Diagnostics problems = status.problems();
    for (Diagnostic& problem : problems) problem.message = text("line ", number, ": ", problem.message);
    return problems;
  }
  return schedule;
}

}  // namespace graphpipe::ir
