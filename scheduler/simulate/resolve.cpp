#include "scheduler/simulate/resolve.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

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
  /// `lowered`: what the lowering knows of the schedule, or null.
  Resolver(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule,
           const LoweredSchedule* lowered, double ticks_per_second)
      : graph_(graph),
        cluster_(cluster),
        schedule_(schedule),
        lowered_(lowered),
        ticks_per_second_(ticks_per_second),
        links_(cluster),
        boundaries_(cost::boundaries(graph)) {}

  Result<ResolvedSchedule> run() {
    if (lowered_ == nullptr) GP_TRY_VOID(check_actions());
    result_.emplace(ResolvedSchedule{.items = lowered_ != nullptr ? lowered_->items : ItemTable(graph_, schedule_)});
    count_needs();
    GP_TRY_VOID(number_slots());
    GP_TRY_VOID(resolve_actions());
    GP_TRY_VOID(pair_messages());
    if (lowered_ == nullptr) GP_TRY_VOID(check_lists());
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
    size_t actions = 0;
    for (const ir::Program& program : schedule_.programs) actions += program.actions.size();
    result_->actions.reserve(actions);
    result_->program_of_action.reserve(actions);
    channels_.resize(channel_offsets());
    channel_of_.reserve(actions);
    for (size_t p = 0; p < schedule_.programs.size(); ++p) {
      const ir::Program& program = schedule_.programs[p];
      result_->first_action.push_back(static_cast<ActionIndex>(result_->actions.size()));
      size_t items = 0;  // of its actions before this one
      for (size_t i = 0; i < program.actions.size(); ++i) {
        const Action& action = program.actions[i];
        ResolvedAction& resolved = result_->actions.emplace_back();
        if (action.slot >= 0) {
          const StageId stage(static_cast<size_t>(action.stage));
          resolved.slot = slot_offset_[stage] + action.replica * schedule_.slots[stage] + action.slot;
        }
        if (ir::is_of_item(action.op)) {
          GP_TRY(resolved.item, lowered_ != nullptr ? lowered_->items_of[p][items++] : item_of(p, i));
        }
        if (ir::is_compute(action.op)) resolved.duration = durations.of(action);
        if (action.op == ActionOp::kOffload || action.op == ActionOp::kReload)
          resolved.duration = copy_time(program.device, action);
        channel_of_.push_back(ir::is_message(action.op) ? fill_message(program.device, action, resolved) : -1);
      }
      result_->program_of_action.resize(result_->actions.size(), static_cast<int32_t>(p));
    }
    result_->first_action.push_back(static_cast<ActionIndex>(result_->actions.size()));
    return Ok{};
  }

  Result<ItemIndex> item_of(size_t program, size_t position) const {
    const Action& action = schedule_.programs[program].actions[position];
    const bool part = ir::is_message(action.op) || action.op == ActionOp::kSlice;
    const ItemIndex item = result_->items.item_of(action);
    if (item >= 0 && (part || result_->items[item].range == action.range)) return item;
    return schedule_problem(schedule_, program, position, "belongs to no forward of this stage and replica",
                            "give every action samples of one forward");
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

  /// What carries the messages of one edge, in one direction, from one replica to another.
  struct Channel {
    int32_t sends = 0, receives = 0;
    int32_t link = -1;
    /// Of its link, once a send has been met; none where both ends are on one device.
    const ir::LinkLevel* level = nullptr;
    bool is_met = false;
    /// Of messages with so many samples as the one before had.
    int64_t samples = -1;
    Ticks busy, duration;
  };

  /// Returns the number of the message's channel.
  int32_t fill_message(ir::DeviceId device, const Action& action, ResolvedAction& resolved) {
    const size_t number = channel_of(action);
    Channel& channel = channels_[number];
    const bool sends = ir::is_send(action.op);
    if (sends && !std::exchange(channel.is_met, true)) {
      meet_link(device, action, channel);
      channel.samples = -1;
    }
    if (std::exchange(channel.samples, action.range.size()) != action.range.size()) {
      const double bytes = message_bytes(action);
      channel.busy = to_ticks(cluster_.runtime.of_message(bytes), ticks_per_second_);
      if (channel.level != nullptr)
        channel.duration = to_ticks(Seconds(bytes / channel.level->bandwidth.count), ticks_per_second_);
    }
    ++(sends ? channel.sends : channel.receives);
    resolved.busy = channel.busy;
    if (!sends || channel.level == nullptr) return static_cast<int32_t>(number);
    resolved.duration = channel.duration;
    resolved.latency = to_ticks(channel.level->latency, ticks_per_second_);
    resolved.link = channel.link;
    return static_cast<int32_t>(number);
  }

  void meet_link(ir::DeviceId device, const Action& send, Channel& channel) {
    const ir::StageEdge& edge = graph_.edges[ir::EdgeId(static_cast<size_t>(send.edge))];
    const StageId to = send.op == ActionOp::kSendBackward ? edge.from : edge.to;
    const ir::DeviceId peer = graph_.stages[to].choice.devices[static_cast<size_t>(send.peer_replica)];
    if (peer == device) return;
    channel.level = &cluster_.link(device, peer);
    channel.link = links_.between(device, peer);
  }

  Status pair_messages() {
    // The messages of all channels, one channel after the other, first its sends.
    std::vector<ActionIndex> messages;
    std::vector<size_t> next_send, next_receive;
    size_t count = 0;
    for (const Channel& channel : channels_) {
      next_send.push_back(count);
      next_receive.push_back(count += static_cast<size_t>(channel.sends));
      count += static_cast<size_t>(channel.receives);
    }
    messages.resize(count);
    for (size_t p = 0; p < schedule_.programs.size(); ++p)
      for (size_t i = 0; i < schedule_.programs[p].actions.size(); ++i) {
        const ActionIndex at = result_->first_action[p] + static_cast<ActionIndex>(i);
        const int32_t channel = channel_of_[static_cast<size_t>(at)];
        if (channel < 0) continue;
        const bool sends = ir::is_send(schedule_.programs[p].actions[i].op);
        messages[(sends ? next_send : next_receive)[static_cast<size_t>(channel)]++] = at;
      }
    size_t first = 0;
    for (const Channel& channel : channels_) {
      const std::span all(messages);
      const auto sends = all.subspan(first, static_cast<size_t>(channel.sends));
      const auto receives = all.subspan(first + sends.size(), static_cast<size_t>(channel.receives));
      first += sends.size() + receives.size();
      GP_TRY_VOID(pair(sends, receives));
    }
    return Ok{};
  }

  /// The k-th send of a channel meets its k-th receive.
  Status pair(std::span<const ActionIndex> sends, std::span<const ActionIndex> receives) {
    const size_t pairs = std::min(sends.size(), receives.size());
    for (size_t k = 0; k < pairs; ++k) {
      if (lowered_ == nullptr && action_of(sends[k]).range != action_of(receives[k]).range)
        return action_diagnostic(receives[k], "meets a send of other samples: the channel keeps its order",
                                 "let both ends of a channel list their messages in the same order");
      result_->actions[static_cast<size_t>(sends[k])].partner = receives[k];
      result_->actions[static_cast<size_t>(receives[k])].partner = sends[k];
    }
    if (sends.size() > pairs)
      return action_diagnostic(sends[pairs], "is never received", "add the receive at its peer");
    if (receives.size() > pairs) return action_diagnostic(receives[pairs], "is never sent", "add the send at its peer");
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
  const LoweredSchedule* const lowered_;
  double ticks_per_second_;
  Links links_;
  const IdMap<StageId, cost::StageBoundary> boundaries_;
  IdMap<StageId, int32_t> slot_offset_;
  std::vector<size_t> channel_offset_;
  std::vector<Channel> channels_;
  /// Per action of a message its channel; -1 for all else.
  std::vector<int32_t> channel_of_;
  std::optional<ResolvedSchedule> result_;
};

}  // namespace

Result<ResolvedSchedule> resolve(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule,
                                 double ticks_per_second) {
  return Resolver(graph, cluster, schedule, nullptr, ticks_per_second).run();
}

Result<ResolvedSchedule> resolve(const StageGraph& graph, const ir::Cluster& cluster, const LoweredSchedule& lowered,
                                 double ticks_per_second) {
  return Resolver(graph, cluster, lowered.schedule, &lowered, ticks_per_second).run();
}

}  // namespace graphpipe::scheduler
