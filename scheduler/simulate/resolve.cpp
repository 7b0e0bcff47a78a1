#include "scheduler/simulate/resolve.h"

#include <algorithm>
#include <map>
#include <optional>

#include "cost/memory.h"
#include "scheduler/simulate/links.h"
#include "scheduler/validate/list_order.h"

namespace graphpipe::scheduler {
namespace {

/// The numbers of actions have 32 bits.
constexpr size_t kMaxResolved = size_t{1} << 30;
constexpr int64_t kMaxSlots = int64_t{1} << 26;
constexpr const char* kRegenerate = "lower the compute order again, or correct this action";

class Resolver {
 public:
  Resolver(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule, double ticks_per_second)
      : graph_(graph),
        cluster_(cluster),
        schedule_(schedule),
        ticks_per_second_(ticks_per_second),
        links_(cluster),
        boundaries_(cost::boundaries(graph)) {}

  Result<ResolvedSchedule> run() {
    GP_TRY_VOID(check_actions());
    result_.emplace(ResolvedSchedule{.items = ItemTable(graph_, schedule_)});
    count_needs();
    GP_TRY_VOID(number_slots());
    GP_TRY_VOID(resolve_actions());
    GP_TRY_VOID(pair_messages());
    GP_TRY_VOID(check_lists());
    result_->link_count = links_.count();
    return std::move(*result_);
  }

 private:
  Status check_actions() const {
    Diagnostics problems;
    IdSet<ir::DeviceId> used;
    size_t actions = 0;
    for (size_t p = 0; p < schedule_.programs.size(); ++p) {
      const ir::Program& program = schedule_.programs[p];
      actions += program.actions.size();
      if (!program.device.valid() || program.device.index() >= cluster_.devices.size())
        return Diagnostic{.code = Code::kBadSchedule,
                          .message = text("device ", program.device, " is not in the cluster"),
                          .hint = "use the cluster that the plan was made for"};
      if (!used.insert(program.device))
        return Diagnostic{.code = Code::kBadSchedule,
                          .message = text("device ", program.device, " has two programs"),
                          .hint = "merge them into one list"};
      for (size_t i = 0; i < program.actions.size() && problems.size() < 20; ++i) {
        std::string_view what = action_problem(graph_, schedule_, program.device, program.actions[i]);
        if (what.empty()) what = overlap_problem(program, i);
        if (!what.empty()) problems.push_back(schedule_problem(schedule_, p, i, what, kRegenerate));
      }
    }
    if (!has_right_starts(schedule_))
      problems.push_back(Diagnostic{.code = Code::kBadSchedule,
                                    .message = "starts that are not one per program, from 0 to 2^53 ticks",
                                    .hint = "leave them out, or give all"});
    for (const int slots : schedule_.slots)
      if (slots < 0 || static_cast<size_t>(slots) > actions || actions > kMaxResolved ||
          schedule_.slots.size() > graph_.stages.size())
        problems.push_back(Diagnostic{.code = Code::kBadSchedule,
                                      .message = text(slots, " ring slots for a schedule of ", actions, " actions"),
                                      .hint = "use one slot per item in flight, and one count per stage"});
    if (problems.empty()) return Ok{};
    return problems;
  }

  void count_needs() {
    IdMap<StageId, int64_t> inputs(graph_.stages.size()), gradients(graph_.stages.size());
    for (const ir::StageEdge& edge : graph_.edges) {
      ++inputs[edge.to];
      if (edge.carries_gradient()) ++gradients[edge.from];
    }
    for (size_t i = 0; i < result_->items.size(); ++i) {
      const Item& item = result_->items[static_cast<ItemIndex>(i)];
      result_->forward_needs.push_back(item.range.size() * inputs[item.stage]);
      result_->backward_needs.push_back(item.range.size() * gradients[item.stage]);
    }
  }

  Status number_slots() {
    slot_offset_.resize(graph_.stages.size());
    int64_t count = 0;
    for (const StageId stage : graph_.stage_ids()) {
      slot_offset_[stage] = static_cast<int32_t>(count);
      const int slots = stage.index() < schedule_.slots.size() ? schedule_.slots[stage] : 0;
      count += int64_t{slots} * std::ssize(graph_.stages[stage].choice.devices);
      if (count > kMaxSlots)
        return Diagnostic{.code = Code::kBadSchedule,
                          .message = text("more than ", kMaxSlots, " ring slots over all replicas"),
                          .hint = "use one slot per item in flight, and one count per stage"};
    }
    result_->slot_count = static_cast<int32_t>(count);
    return Ok{};
  }

  Status resolve_actions() {
    Durations durations(graph_, ticks_per_second_, cluster_.runtime.action);
    for (size_t p = 0; p < schedule_.programs.size(); ++p) {
      const ir::Program& program = schedule_.programs[p];
      result_->first_action.push_back(static_cast<ActionIndex>(result_->actions.size()));
      for (size_t i = 0; i < program.actions.size(); ++i) {
        const Action& action = program.actions[i];
        const StageId stage(static_cast<size_t>(action.stage));
        ResolvedAction resolved;
        if (action.slot >= 0)
          resolved.slot = slot_offset_[stage] + action.replica * schedule_.slots[stage] + action.slot;
        const bool message = ir::is_message(action.op);
        if (ir::is_of_item(action.op)) {
          const bool part = message || action.op == ActionOp::kSlice;
          resolved.item = result_->items.containing(stage, action.replica, action.range);
          if (resolved.item < 0 || (!part && result_->items[resolved.item].range != action.range))
            return schedule_problem(schedule_, p, i, "belongs to no forward of this stage and replica",
                                    "give every action samples of one forward");
        }
        if (ir::is_compute(action.op)) resolved.duration = durations.of(action);
        if (action.op == ActionOp::kOffload || action.op == ActionOp::kReload)
          resolved.duration = copy_time(program.device, action);
        if (message) resolved.busy = busy_of(action);
        if (ir::is_send(action.op)) fill_send(program.device, action, resolved);
        result_->actions.push_back(resolved);
        result_->program_of_action.push_back(static_cast<int32_t>(p));
      }
    }
    result_->first_action.push_back(static_cast<ActionIndex>(result_->actions.size()));
    return Ok{};
  }

  /// The time to copy an item's stash and outputs at the bandwidth of the device's memory.
  Ticks copy_time(ir::DeviceId device, const Action& action) const {
    const StageId stage(static_cast<size_t>(action.stage));
    const cost::ItemBytes item = cost::item_bytes(graph_, boundaries_[stage], stage, Samples(action.range.size()));
    const double bytes = static_cast<double>((item.stash + item.outputs).count);
    return to_ticks(Seconds(bytes / cluster_.devices[device].memory_bandwidth.count), ticks_per_second_);
  }

  Status check_lists() const {
    std::vector<std::vector<int32_t>> item_of;
    std::vector<SampleRange> range_of;
    for (size_t p = 0; p < schedule_.programs.size(); ++p) {
      std::vector<int32_t>& items = item_of.emplace_back();
      for (ActionIndex at = result_->first_action[p]; at < result_->first_action[p + 1]; ++at)
        items.push_back(result_->actions[static_cast<size_t>(at)].item);
    }
    for (size_t i = 0; i < result_->items.size(); ++i)
      range_of.push_back(result_->items[static_cast<ItemIndex>(i)].range);
    const std::optional<ListProblem> found = list_problem(graph_, schedule_, item_of, range_of);
    if (!found) return Ok{};
    if (!found->missing) return schedule_problem(schedule_, found->program, found->position, found->what, kRegenerate);
    return schedule_problem(schedule_, found->program, found->position,
                            text("needs ", ir::print_action(*found->missing), " before it"), kRegenerate);
  }

  double message_bytes(const Action& action) const {
    const ir::StageEdge& edge = graph_.edges[ir::EdgeId(static_cast<size_t>(action.edge))];
    return (ir::is_backward_message(action.op) ? edge.gradient_bytes : edge.bytes).at(Samples(action.range.size()));
  }

  Ticks busy_of(const Action& action) const {
    return to_ticks(cluster_.runtime.of_message(message_bytes(action)), ticks_per_second_);
  }

  void fill_send(ir::DeviceId device, const Action& action, ResolvedAction& resolved) {
    const ir::StageEdge& edge = graph_.edges[ir::EdgeId(static_cast<size_t>(action.edge))];
    const bool backward = action.op == ActionOp::kSendBackward;
    const ir::DeviceId peer =
        graph_.stages[backward ? edge.from : edge.to].choice.devices[static_cast<size_t>(action.peer_replica)];
    if (peer == device) return;
    const ir::LinkLevel& level = cluster_.link(device, peer);
    resolved.duration = to_ticks(Seconds(message_bytes(action) / level.bandwidth.count), ticks_per_second_);
    resolved.latency = to_ticks(level.latency, ticks_per_second_);
    resolved.link = links_.between(device, peer);
  }

  /// The actions of one channel, sends and receives in list order.
  struct Channel {
    std::vector<ActionIndex> sends, receives;
  };

  Status pair_messages() {
    std::vector<Channel> channels(channel_offsets());
    for (size_t p = 0; p < schedule_.programs.size(); ++p)
      for (size_t i = 0; i < schedule_.programs[p].actions.size(); ++i) {
        const Action& action = schedule_.programs[p].actions[i];
        const ActionIndex at = result_->first_action[p] + static_cast<ActionIndex>(i);
        if (ir::is_send(action.op)) channels[channel_of(action)].sends.push_back(at);
        if (ir::is_receive(action.op)) channels[channel_of(action)].receives.push_back(at);
      }
    for (const Channel& channel : channels) {
      const size_t pairs = std::min(channel.sends.size(), channel.receives.size());
      for (size_t k = 0; k < pairs; ++k) {
        if (action_of(channel.sends[k]).range != action_of(channel.receives[k]).range)
          return action_diagnostic(channel.receives[k], "meets a send of other samples: the channel keeps its order",
                                   "let both ends of a channel list their messages in the same order");
        result_->actions[static_cast<size_t>(channel.sends[k])].partner = channel.receives[k];
        result_->actions[static_cast<size_t>(channel.receives[k])].partner = channel.sends[k];
      }
      if (channel.sends.size() > pairs)
        return action_diagnostic(channel.sends[pairs], "is never received", "add the receive at its peer");
      if (channel.receives.size() > pairs)
        return action_diagnostic(channel.receives[pairs], "is never sent", "add the send at its peer");
    }
    return Ok{};
  }

  size_t channel_offsets() {
    size_t total = 0;
    for (const ir::StageEdge& edge : graph_.edges) {
      channel_offset_.push_back(total);
      total += 2 * replicas(edge.from) * replicas(edge.to);
    }
    return total;
  }

  size_t channel_of(const Action& action) const {
    const auto id = static_cast<size_t>(action.edge);
    const ir::StageEdge& edge = graph_.edges[ir::EdgeId(id)];
    const bool at_producer = action.op == ActionOp::kSendForward || action.op == ActionOp::kReceiveBackward;
    const auto producer = static_cast<size_t>(at_producer ? action.replica : action.peer_replica);
    const auto consumer = static_cast<size_t>(at_producer ? action.peer_replica : action.replica);
    const size_t direction = ir::is_backward_message(action.op) ? 1 : 0;
    return channel_offset_[id] + (direction * replicas(edge.from) + producer) * replicas(edge.to) + consumer;
  }

  size_t replicas(StageId stage) const { return graph_.stages[stage].choice.devices.size(); }

  const Action& action_of(ActionIndex at) const {
    const auto p = static_cast<size_t>(result_->program_of_action[static_cast<size_t>(at)]);
    return schedule_.programs[p].actions[static_cast<size_t>(at - result_->first_action[p])];
  }

  Diagnostic action_diagnostic(ActionIndex at, std::string_view what, std::string hint) const {
    const auto p = static_cast<size_t>(result_->program_of_action[static_cast<size_t>(at)]);
    return schedule_problem(schedule_, p, static_cast<size_t>(at - result_->first_action[p]), what, std::move(hint));
  }

  const StageGraph& graph_;
  const ir::Cluster& cluster_;
  const Schedule& schedule_;
  double ticks_per_second_;
  Links links_;
  const IdMap<StageId, cost::StageBoundary> boundaries_;
  IdMap<StageId, int32_t> slot_offset_;
  std::vector<size_t> channel_offset_;
  std::optional<ResolvedSchedule> result_;
};

}  // namespace

Result<ResolvedSchedule> resolve(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule,
                                 double ticks_per_second) {
  return Resolver(graph, cluster, schedule, ticks_per_second).run();
}

}  // namespace graphpipe::scheduler
