#include "runtime/executor/resolve.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "runtime/error.h"
#include "runtime/executor/plan_channels.h"
#include "runtime/tensors.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

using wire::ActionOp;
using wire::ActionRow;
using wire::SampleRange;

[[noreturn]] void refuse(const PlanTable& plan, const ActionRow& row, const std::string& why) {
  fail(Code::kBadSchedule, describe(plan, row) + ": " + why, "check the schedule, then generate the folder again");
}

bool is_backward(ActionOp op) { return op == ActionOp::kBackward || op == ActionOp::kInputGradient; }
// Actions that use what an item's slot holds from its forward on.
bool uses_slot(ActionOp op) {
  return wire::is_compute(op) || op == ActionOp::kOffload || op == ActionOp::kReload || op == ActionOp::kRelease;
}

class Resolver {
 public:
  explicit Resolver(const DeviceProgram& program) : program_(program), plan_(*program.plan) {}

  ResolvedProgram run() {
    add_instances();
    for (const ActionRow& row : program_.actions) add_action(row);
    for (size_t i = out_.actions.size(); i-- > 0;) find_item_backwards(i);
    for (ResolvedAction& action : out_.actions) find_item_forwards(action);
    for (size_t i = 0; i < out_.actions.size(); ++i) check_arrivals(i);
    for (size_t i = 0; i < out_.actions.size(); ++i) check_slice(i);
    mark_item_ends();
    find_updates();
    check_versions();
    mark_kept_versions();
    out_.channels = plan_channels(program_, out_);
    return std::move(out_);
  }

 private:
  using Place = std::pair<size_t, int32_t>;  // instance, slot

  void add_instances() {
    for (const PlacementRow& row : plan_.placement) {
      if (row.device != program_.device) continue;
      const auto found = std::ranges::find(program_.stages, row.stage, [](const StageEntry* e) { return e->stage; });
      if (found == program_.stages.end())
        fail(Code::kBadSchedule, text("device ", program_.device, " holds no code of stage ", row.stage),
             "generate the folder again");
      out_.instances.push_back({*found, row.replica});
    }
  }

  void add_action(const ActionRow& row) {
    ResolvedAction action{.row = row};
    const auto found = std::ranges::find_if(out_.instances, [&](const Instance& instance) {
      return instance.entry->stage == row.stage && instance.replica == row.replica;
    });
    const bool of_device = row.op == ActionOp::kNorm;
    if (found == out_.instances.end() && !of_device) refuse(plan_, row, "this device does not hold it");
    action.instance = of_device ? 0 : static_cast<size_t>(found - out_.instances.begin());
    if (wire::is_of_item(row.op)) check_slot(row);
    if (wire::is_message(row.op)) add_transfer(row, action);
    // A slice belongs to the send that follows it.
    if (wire::is_send(row.op) && !out_.actions.empty() && out_.actions.back().row.op == ActionOp::kSlice)
      out_.actions.back().transfer = action.transfer;
    out_.actions.push_back(std::move(action));
  }

  void check_slot(const ActionRow& row) const {
    const StageRow& stage = plan_.stages[static_cast<size_t>(row.stage)];
    if (row.slot < 0 || row.slot >= stage.slots) refuse(plan_, row, text("it has no slot ", row.slot));
    if (row.range.first < 0 || row.range.empty() || row.range.last > plan_.batch * plan_.batches)
      refuse(plan_, row, "its samples lie outside the batch");
  }

  void add_transfer(const ActionRow& row, ResolvedAction& action) {
    const StageEntry& entry = *out_.instances[action.instance].entry;
    const bool forward = row.op == ActionOp::kSendForward || row.op == ActionOp::kReceiveForward;
    const bool input_end = row.op == ActionOp::kReceiveForward || row.op == ActionOp::kSendBackward;
    const auto boundary = std::ranges::find_if(
        entry.boundaries, [&](const BoundaryRow& b) { return b.edge == row.edge && b.is_input == input_end; });
    if (boundary == entry.boundaries.end()) refuse(plan_, row, text("the stage has no end of edge ", row.edge));
    if (!forward && boundary->gradient_slot < 0) refuse(plan_, row, text("edge ", row.edge, " carries no gradient"));
    const EdgeRow& edge = plan_.edges[static_cast<size_t>(row.edge)];
    const int32_t peer_stage = input_end ? edge.from : edge.to;
    const bool send = wire::is_send(row.op);
    action.transfer = out_.transfers.size();
    out_.transfers.push_back({.boundary = &*boundary,
                              .key = {.kind = forward ? ChannelKind::kForward : ChannelKind::kBackward,
                                      .index = row.edge,
                                      .from = send ? row.replica : row.peer_replica,
                                      .to = send ? row.peer_replica : row.replica},
                              .peer_rank = device_of(plan_, peer_stage, row.peer_replica),
                              .first_slot = forward ? boundary->slot : boundary->gradient_slot,
                              .parts = forward ? 1 : boundary->gradient_count});
  }

  // A receive belongs to the item of the next F, or B or I, in its slot; if a CONCAT of its edge comes first, the
  // CONCAT assembles it.
  void find_item_backwards(size_t index) {
    ResolvedAction& action = out_.actions[index];
    const ActionRow& row = action.row;
    const Place place{action.instance, row.slot};
    if (row.op == ActionOp::kForward || is_backward(row.op)) {
      const bool backward = is_backward(row.op);
      (backward ? next_backward_ : next_forward_)[place] = index;
      std::erase_if(next_join_, [&](const auto& join) {
        return std::get<0>(join.first) == place && std::get<1>(join.first) == backward;
      });
    }
    if (row.op == ActionOp::kConcatenate) find_reader(index, place);
    if (!wire::is_receive(row.op)) return;
    const bool backward = row.op == ActionOp::kReceiveBackward;
    const auto& next = backward ? next_backward_ : next_forward_;
    const auto found = next.find(place);
    if (found == next.end()) refuse(plan_, row, "nothing uses what it receives");
    const auto join = next_join_.find({place, backward, row.edge});
    const size_t user = join == next_join_.end() ? found->second : join->second;
    Transfer& transfer = out_.transfers[action.transfer];
    transfer.item = out_.actions[found->second].row.range;
    transfer.arrival = arrival_of(user, transfer);
    check_message(row, transfer);
    covered_[transfer.arrival].push_back(row.range);
  }

  void find_reader(size_t index, const Place& place) {
    const ActionRow& row = out_.actions[index].row;
    if (row.edge < 0 || static_cast<size_t>(row.edge) >= plan_.edges.size()) refuse(plan_, row, "it names no edge");
    const bool backward = plan_.edges[static_cast<size_t>(row.edge)].from == row.stage;
    const auto& next = backward ? next_backward_ : next_forward_;
    const auto found = next.find(place);
    if (found == next.end() || out_.actions[found->second].row.range != row.range)
      refuse(plan_, row, "nothing uses what it joins");
    next_join_[{place, backward, row.edge}] = index;
    joins_of_[found->second].push_back(index);
  }

  size_t arrival_of(size_t consumer, const Transfer& transfer) {
    for (size_t arrival : out_.actions[consumer].arrivals)
      if (out_.arrivals[arrival].boundary == transfer.boundary) return arrival;
    out_.actions[consumer].arrivals.push_back(out_.arrivals.size());
    out_.arrivals.push_back({.boundary = transfer.boundary,
                             .item = transfer.item,
                             .first_slot = transfer.first_slot,
                             .parts = transfer.parts});
    return out_.arrivals.size() - 1;
  }

  // A send belongs to the item of the last F, or B or I, in its slot.
  void find_item_forwards(ResolvedAction& action) {
    const ActionRow& row = action.row;
    const Place place{action.instance, row.slot};
    if (row.op == ActionOp::kForward) last_forward_[place] = row.range;
    if (is_backward(row.op)) last_backward_[place] = row.range;
    if (uses_slot(row.op) && (!last_forward_.contains(place) || last_forward_[place] != row.range))
      refuse(plan_, row, "its slot does not hold these samples");
    if (!wire::is_send(row.op)) return;
    const auto& last = row.op == ActionOp::kSendForward ? last_forward_ : last_backward_;
    const auto found = last.find(place);
    if (found == last.end()) refuse(plan_, row, "nothing has made what it sends");
    Transfer& transfer = out_.transfers[action.transfer];
    transfer.item = found->second;
    check_message(row, transfer);
  }

  void check_message(const ActionRow& row, const Transfer& transfer) const {
    if (wire::intersect(row.range, transfer.item) != row.range) refuse(plan_, row, "its samples lie outside the item");
    if (transfer.boundary->tensor.batch_axis < 0 && row.range != transfer.item)
      refuse(plan_, row, "a value that mixes samples is sent whole or not at all");
  }

  // Every boundary tensor that an F, B or I needs is received, each sample exactly once.
  void check_arrivals(size_t index) {
    const ResolvedAction& action = out_.actions[index];
    if (action.row.op == ActionOp::kConcatenate && action.arrivals.empty())
      refuse(plan_, action.row, "nothing that it joins is received");
    if (action.row.op != ActionOp::kForward && !is_backward(action.row.op)) return;
    const bool forward = action.row.op == ActionOp::kForward;
    std::set<const BoundaryRow*> arrived;
    std::vector<size_t> arrivals = action.arrivals;
    for (size_t join : joins_of_[index])
      arrivals.insert(arrivals.end(), out_.actions[join].arrivals.begin(), out_.actions[join].arrivals.end());
    for (size_t arrival : arrivals) {
      arrived.insert(out_.arrivals[arrival].boundary);
      std::vector<SampleRange>& ranges = covered_[arrival];
      std::ranges::sort(ranges, {}, &SampleRange::first);
      int64_t next = action.row.range.first;
      for (const SampleRange& range : ranges) {
        if (range.first != next) refuse(plan_, action.row, text("sample ", next, " is received twice or never"));
        next = range.last;
      }
      if (next != action.row.range.last) refuse(plan_, action.row, text("sample ", next, " is never received"));
    }
    for (const BoundaryRow& boundary : out_.instances[action.instance].entry->boundaries) {
      const bool needed = forward ? boundary.is_input : !boundary.is_input && boundary.gradient_slot >= 0;
      if (needed && !arrived.contains(&boundary))
        refuse(plan_, action.row, text("it needs edge ", boundary.edge, ", which is never received"));
    }
  }

  // A message that carries only part of an item needs a slice before it.
  void check_slice(size_t index) const {
    const ResolvedAction& action = out_.actions[index];
    const bool slice = action.row.op == ActionOp::kSlice;
    if (!slice && !(wire::is_send(action.row.op) && action.row.range != out_.transfers[action.transfer].item)) return;
    const size_t send = slice ? index + 1 : index;
    const bool paired = send > 0 && send < out_.actions.size() && wire::is_send(out_.actions[send].row.op) &&
                        out_.actions[send - 1].row.op == ActionOp::kSlice &&
                        out_.actions[send - 1].row.range == out_.actions[send].row.range &&
                        out_.actions[send - 1].row.edge == out_.actions[send].row.edge &&
                        out_.actions[send - 1].instance == out_.actions[send].instance;
    if (!paired) refuse(plan_, action.row, slice ? "no send of what it cuts follows it" : "no slice has cut its rows");
  }

  void mark_item_ends() {
    std::map<Place, ResolvedAction*> last;
    for (ResolvedAction& action : out_.actions) {
      if (!uses_slot(action.row.op) && !wire::is_send(action.row.op)) continue;
      ResolvedAction*& current = last[{action.instance, action.row.slot}];
      if (action.row.op == ActionOp::kForward && current != nullptr) current->ends_item = true;
      current = &action;
    }
    for (const auto& [place, action] : last) action->ends_item = true;
  }

  struct Update {
    SampleRange range;
    size_t step = 0;  // index of its action
  };

  // Finds the update that an item's gradients belong to, and checks that they are complete before the update's step.
  void find_updates() {
    std::map<size_t, std::vector<Update>> updates;  // by instance, ascending
    std::map<size_t, int64_t> reduced;              // by instance: the last update
    for (size_t i = 0; i < out_.actions.size(); ++i) {
      const ActionRow& row = out_.actions[i].row;
      if (row.op != ActionOp::kStep) continue;
      std::vector<Update>& list = updates[out_.actions[i].instance];
      const int64_t next = list.empty() ? 0 : list.back().range.last;
      // With a parameter server, a worker's program has only the updates of its own micro-batches.
      const bool follows = plan_.server >= 0 ? row.range.first >= next : row.range.first == next;
      if (!follows || row.range.empty())
        refuse(plan_, row, "the updates of a stage follow each other from sample 0 on");
      list.push_back({row.range, i});
    }
    std::map<std::pair<size_t, int64_t>, ResolvedAction*> last_gradients;  // by instance, update
    for (size_t i = 0; i < out_.actions.size(); ++i) {
      ResolvedAction& action = out_.actions[i];
      const auto found = updates.find(action.instance);
      if (found == updates.end()) continue;
      if (wire::is_compute(action.row.op)) action.update = update_of(action.row, i, found->second);
      if (wire::makes_weight_gradients(action.row.op)) last_gradients[{action.instance, action.update}] = &action;
      if (action.row.op == ActionOp::kStep) action.update = action.row.range.first;
      if (action.row.op == ActionOp::kReduceGradient) {
        const auto own = std::ranges::find(found->second, action.row.range, &Update::range);
        if (own == found->second.end() || own->step < i) refuse(plan_, action.row, "no step after it has its samples");
        action.update = action.row.range.first;
        // On the channels of a stage, reductions follow the order of the samples.
        const auto [last, is_first] = reduced.try_emplace(action.instance, action.update);
        if (!is_first && action.update <= last->second) refuse(plan_, action.row, "a later reduction comes before it");
        last->second = action.update;
      }
    }
    for (const auto& [update, action] : last_gradients) action->ends_gradients = true;
  }

  int64_t update_of(const ActionRow& row, size_t index, const std::vector<Update>& updates) const {
    const auto own = std::ranges::find_if(
        updates, [&](const Update& update) { return wire::intersect(row.range, update.range) == row.range; });
    if (own == updates.end()) refuse(plan_, row, "its samples lie in no step's range");
    if (own->step < index && wire::makes_weight_gradients(row.op))
      refuse(plan_, row, "it comes after the step that needs its gradients");
    return own->range.first;
  }

  // Steps create versions in sequence, and nothing reads a version that does not exist.
  void check_versions() const {
    struct Versions {
      int32_t newest = 0;
      std::set<int32_t> freed;
    };
    std::map<size_t, Versions> versions;  // by instance
    for (const ResolvedAction& action : out_.actions) {
      const ActionRow& row = action.row;
      Versions& now = versions[action.instance];
      if (row.op == ActionOp::kStep && row.version != ++now.newest)
        refuse(plan_, row, text("it makes version ", row.version, " after version ", now.newest - 1));
      const bool exists = row.version >= 0 && row.version <= now.newest && !now.freed.contains(row.version);
      if (wire::is_compute(row.op) && !exists) refuse(plan_, row, text("there is no weight version ", row.version));
      if (row.op == ActionOp::kFreeVersion && (!exists || row.version == now.newest))
        refuse(plan_, row, text("there is no old weight version ", row.version));
      if (row.op == ActionOp::kFreeVersion) now.freed.insert(row.version);
    }
  }

  void mark_kept_versions() {
    std::set<std::pair<size_t, int32_t>> read;  // (instance, version) read by later actions
    for (size_t i = out_.actions.size(); i-- > 0;) {
      ResolvedAction& action = out_.actions[i];
      if (wire::is_compute(action.row.op)) read.insert({action.instance, action.row.version});
      if (action.row.op == ActionOp::kStep)
        action.keeps_version = read.contains({action.instance, action.row.version - 1});
    }
  }

  const DeviceProgram& program_;
  const PlanTable& plan_;
  ResolvedProgram out_;
  std::map<Place, size_t> next_forward_, next_backward_;
  std::map<Place, SampleRange> last_forward_, last_backward_;
  std::map<std::tuple<Place, bool, int32_t>, size_t> next_join_;  // by place, whether backward, edge
  std::map<size_t, std::vector<size_t>> joins_of_;                // by the action that reads what they join
  std::map<size_t, std::vector<SampleRange>> covered_;            // by arrival
};

}  // namespace

int32_t device_of(const PlanTable& plan, int32_t stage, int32_t replica) {
  for (const PlacementRow& row : plan.placement)
    if (row.stage == stage && row.replica == replica) return row.device;
  fail(Code::kBadSchedule, text("stage ", stage, ", replica ", replica, " is placed on no device"),
       "generate the folder again");
}

const GroupRow* shared_group(const PlanTable& plan, int32_t group) {
  if (group < 0) return nullptr;
  const auto found = std::ranges::find(plan.groups, group, &GroupRow::group);
  return found == plan.groups.end() ? nullptr : &*found;
}

std::string describe(const PlanTable& plan, const wire::ActionRow& row) {
  std::string out = wire::action_name(row.op);
  if (!row.range.empty()) out += text(" of samples [", row.range.first, ",", row.range.last, ")");
  const bool known = row.stage >= 0 && static_cast<size_t>(row.stage) < plan.stages.size();
  const int64_t micro_batch = known ? std::max<int64_t>(1, plan.stages[static_cast<size_t>(row.stage)].micro_batch) : 1;
  if (known && wire::is_of_item(row.op)) out += text(" (micro-batch ", row.range.first / micro_batch, ")");
  if (row.edge >= 0) out += text(" over edge ", row.edge);
  return out + text(" of stage ", row.stage, ", replica ", row.replica);
}

ResolvedProgram resolve(const DeviceProgram& program) { return Resolver(program).run(); }

}  // namespace graphpipe::runtime
