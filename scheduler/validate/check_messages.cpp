// Messages: what each item needs arrives once, from where it was computed, over channels that keep their order.

#include <algorithm>
#include <map>

#include "scheduler/validate/check_tables.h"
#include "scheduler/validate/list_order.h"

namespace graphpipe::scheduler::check {
namespace {

constexpr const char* kLower = "let the lowering insert the transfers, or correct this action";

/// Channel: edge, backward, producer replica, consumer replica.
using Channel = std::tuple<int32_t, bool, int32_t, int32_t>;

Channel channel_of(const Action& action) {
  const bool backward = ir::is_backward_message(action.op);
  const bool at_producer = ir::is_send(action.op) != backward;
  return at_producer ? Channel(action.edge, backward, action.replica, action.peer_replica)
                     : Channel(action.edge, backward, action.peer_replica, action.replica);
}

/// Whether the action stands where its item allows: sends after what they send, receives before what they feed.
std::string_view position_problem(const CheckedItem& item, const Action& action, int position) {
  switch (action.op) {
    case ActionOp::kSendForward:
      return position < item.forward ? "sends what its forward computes only later" : "";
    case ActionOp::kReceiveForward:
      return position > item.forward ? "comes after the forward that needs it" : "";
    case ActionOp::kSendBackward:
      return item.backward < 0 || position < item.backward ? "sends what its backward computes only later" : "";
    default:
      if (item.backward < 0 || position > item.backward) return "comes after the backward that needs it";
      return position < item.forward ? "comes before its item's forward" : "";
  }
}

Diagnostics pair_channels(Tables& tables) {
  struct Ends {
    std::vector<Place> sends, receives;
  };
  std::map<Channel, Ends> channels;
  for_each_action(tables, [&](Place place, const Action& action) {
    if (ir::is_send(action.op)) channels[channel_of(action)].sends.push_back(place);
    if (ir::is_receive(action.op)) channels[channel_of(action)].receives.push_back(place);
  });
  for (const auto& [channel, ends] : channels) {
    const size_t pairs = std::min(ends.sends.size(), ends.receives.size());
    for (size_t k = 0; k < pairs; ++k) {
      const Place send = ends.sends[k], receive = ends.receives[k];
      if (tables.action(send).range != tables.action(receive).range)
        return {tables.problem(receive,
                               text("meets ", place_text(tables.schedule, static_cast<size_t>(send.program),
                                                         static_cast<size_t>(send.position))),
                               "let both ends of a channel list their messages in the same order")};
      tables.partner[static_cast<size_t>(send.program)][static_cast<size_t>(send.position)] = receive;
      tables.partner[static_cast<size_t>(receive.program)][static_cast<size_t>(receive.position)] = send;
    }
    if (ends.sends.size() > pairs)
      return {tables.problem(ends.sends[pairs], "is never received", "add the receive at its peer")};
    if (ends.receives.size() > pairs)
      return {tables.problem(ends.receives[pairs], "is never sent", "add the send at its peer")};
  }
  return {};
}

/// Item, edge, backward.
using ArrivalKey = std::tuple<int, int32_t, bool>;

bool tiles(std::vector<SampleRange> pieces, SampleRange whole) {
  std::sort(pieces.begin(), pieces.end(), [](SampleRange a, SampleRange b) { return a.first < b.first; });
  int64_t next = whole.first;
  for (const SampleRange piece : pieces) {
    if (piece.first != next) return false;
    next = piece.last;
  }
  return next == whole.last;
}

Diagnostics check_arrivals(const Tables& tables) {
  std::map<ArrivalKey, std::vector<SampleRange>> arrivals;
  for_each_action(tables, [&](Place place, const Action& action) {
    if (!ir::is_receive(action.op)) return;
    const int item = tables.item_of[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
    arrivals[{item, action.edge, ir::is_backward_message(action.op)}].push_back(action.range);
  });
  const auto complete = [&](size_t item, ir::EdgeId edge, bool backward) {
    const auto found = arrivals.find({static_cast<int>(item), static_cast<int32_t>(edge.index()), backward});
    return found != arrivals.end() && tiles(found->second, tables.items[item].range);
  };
  IdMap<StageId, std::vector<ir::EdgeId>> inputs(tables.graph.stages.size()), gradients(tables.graph.stages.size());
  for (const ir::EdgeId edge : tables.graph.edge_ids()) {
    inputs[tables.graph.edges[edge].to].push_back(edge);
    if (tables.graph.edges[edge].carries_gradient()) gradients[tables.graph.edges[edge].from].push_back(edge);
  }
  for (size_t i = 0; i < tables.items.size(); ++i) {
    const CheckedItem& item = tables.items[i];
    for (const ir::EdgeId edge : inputs[item.stage])
      if (!complete(i, edge, false))
        return {tables.problem(item.program, item.forward, text("does not receive each sample of edge ", edge, " once"),
                               kLower)};
    for (const ir::EdgeId edge : gradients[item.stage])
      if (!complete(i, edge, true))
        return {tables.problem(item.program, item.backward < 0 ? item.forward : item.backward,
                               text("does not receive each sample of edge ", edge, "'s gradient once"), kLower)};
  }
  return {};
}

/// Slices, concatenations, memory and flushes.
Diagnostics check_pieces(const Tables& tables) {
  std::vector<SampleRange> range_of;
  for (const CheckedItem& item : tables.items) range_of.push_back(item.range);
  const std::optional<ListProblem> found = list_problem(tables.graph, tables.schedule, tables.item_of, range_of);
  if (!found) return {};
  const Place place{static_cast<int>(found->program), static_cast<int>(found->position)};
  if (found->missing) return {tables.missing(place, *found->missing, found->what, kLower)};
  return {tables.problem(place, found->what, kLower)};
}

}  // namespace

Diagnostics check_messages(Tables& tables) {
  for (const ir::Program& program : tables.schedule.programs) tables.partner.emplace_back(program.actions.size());
  Diagnostics problems;
  for_each_action(tables, [&](Place place, const Action& action) {
    if (!problems.empty() || !ir::is_message(action.op)) return;
    const int index = tables.item_of[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
    const CheckedItem& item = tables.items[static_cast<size_t>(index)];
    std::string_view what = position_problem(item, action, place.position);
    const ir::StageEdge& edge = tables.graph.edges[ir::EdgeId(static_cast<size_t>(action.edge))];
    if (what.empty() && edge.batch == ir::BatchKind::kMixed && action.range != item.range)
      what = "cuts a value that mixes samples";
    if (!what.empty()) problems.push_back(tables.problem(place, what, kLower));
  });
  if (!problems.empty()) return problems;
  if (problems = pair_channels(tables); !problems.empty()) return problems;
  if (problems = check_arrivals(tables); !problems.empty()) return problems;
  return check_pieces(tables);
}

}  // namespace graphpipe::scheduler::check
