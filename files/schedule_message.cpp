#include "files/schedule_message.h"

#include <array>
#include <limits>
#include <set>

#include "files/schema/schedule.pb.h"
#include "support/exact_integer.h"

namespace graphpipe::files {
namespace {

constexpr std::array<std::string_view, 3> kStreams = {"compute", "communication", "collective"};

// What an action is where a file says nothing: only what differs is written.
void fill_action(const ir::Action& action, schema::Action& message) {
  const ir::Action plain;
  message.set_op(wire::action_name(action.op));
  if (action.stage != plain.stage) message.set_stage(action.stage);
  if (action.replica != plain.replica) message.set_replica(action.replica);
  if (action.range.first != plain.range.first) message.set_first(narrow(action.range.first));
  if (action.range.last != plain.range.last) message.set_last(narrow(action.range.last));
  if (action.edge != plain.edge) message.set_edge(action.edge);
  if (action.peer_replica != plain.peer_replica) message.set_peer_replica(action.peer_replica);
  if (action.slot != plain.slot) message.set_slot(action.slot);
  if (action.version != plain.version) message.set_version(action.version);
  if (action.overlaps_next) message.set_overlaps_next(true);
  if (action.stream != plain.stream) message.set_stream(std::string(kStreams.at(static_cast<size_t>(action.stream))));
}

ir::Action action_of(const schema::Action& message, const std::string& path, FieldProblems& problems) {
  ir::Action action;
  bool known = false;
  for (int i = 0; i < wire::kActionOpCount; ++i) {
    const auto op = static_cast<ir::ActionOp>(i);
    if (message.op() != wire::action_name(op)) continue;
    action.op = op;
    known = true;
  }
  if (!known) problems.add(path + ".op", "is no action: ", quoted(ModelText(message.op())));
  const auto take = [&](bool present, int32_t number, std::string_view name, auto& field) {
    if (!present) return;
    problems.need_range(path + "." + std::string(name), number, 0, kMaxOfMessage);
    field = number;
  };
  take(message.has_stage(), message.stage(), "stage", action.stage);
  take(message.has_replica(), message.replica(), "replica", action.replica);
  take(message.has_first(), message.first(), "first", action.range.first);
  take(message.has_last(), message.last(), "last", action.range.last);
  take(message.has_edge(), message.edge(), "edge", action.edge);
  take(message.has_peer_replica(), message.peer_replica(), "peer_replica", action.peer_replica);
  take(message.has_slot(), message.slot(), "slot", action.slot);
  take(message.has_version(), message.version(), "version", action.version);
  action.overlaps_next = message.overlaps_next();
  if (action.range.last < action.range.first) problems.add(path + ".last", "is before first, ", action.range.first);
  if (message.has_stream()) {
    size_t stream = 0;
    while (stream < kStreams.size() && kStreams[stream] != message.stream()) ++stream;
    if (stream == kStreams.size()) problems.add(path + ".stream", "must be compute, communication or collective");
    else action.stream = static_cast<wire::Stream>(stream);
  }
  return action;
}

}  // namespace

void fill_message(const ir::Schedule& schedule, schema::Schedule& message) {
  message.set_policy(schedule.policy);
  for (const ir::Program& program : schedule.programs) {
    schema::Program& out = *message.add_programs();
    out.set_device(narrow(static_cast<int64_t>(program.device.index())));
    for (const ir::Action& action : program.actions) fill_action(action, *out.add_actions());
  }
  for (int slots : schedule.slots) message.add_slots(slots);
  for (const Ticks start : schedule.starts) message.add_starts(start.count);
}

ir::Schedule schedule_of(const schema::Schedule& message, std::string_view path, FieldProblems& problems) {
  ir::Schedule schedule;
  problems.need_name(text(path, ".policy"), schedule.policy = message.policy());
  std::set<int32_t> devices;
  for (int p = 0; p < message.programs_size(); ++p) {
    const schema::Program& program = message.programs(p);
    const std::string place = text(path, ".programs[", p, "]");
    problems.need_range(place + ".device", program.device(), 0, kMaxOfMessage);
    if (!devices.insert(program.device()).second) problems.add(place + ".device", "has a program already");
    ir::Program out{.device = ir::DeviceId(static_cast<size_t>(program.device())), .actions = {}};
    for (int a = 0; a < program.actions_size(); ++a)
      out.actions.push_back(action_of(program.actions(a), text(place, ".actions[", a, "]"), problems));
    schedule.programs.push_back(std::move(out));
  }
  for (int s = 0; s < message.slots_size(); ++s) {
    problems.need_range(text(path, ".slots[", s, "]"), message.slots(s), 0, kMaxOfMessage);
    schedule.slots.push_back(message.slots(s));
  }
  for (int p = 0; p < message.starts_size(); ++p) {
    problems.need_range(text(path, ".starts[", p, "]"), message.starts(p), int64_t{0}, kMaxExactInteger);
    schedule.starts.push_back(Ticks(message.starts(p)));
  }
  return schedule;
}

}  // namespace graphpipe::files
