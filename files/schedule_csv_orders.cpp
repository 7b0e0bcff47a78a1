// Between the cells of PyTorch's CSV and a schedule.

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "files/schedule_csv.h"

namespace graphpipe::files {
namespace {

using ir::Action;
using ir::ActionOp;
using ir::StageId;

std::optional<CsvOp> csv_op(ActionOp op) {
  const auto found = std::find(kActionsOfCsv.begin(), kActionsOfCsv.end(), op);
  if (found == kActionsOfCsv.end()) return std::nullopt;
  return static_cast<CsvOp>(found - kActionsOfCsv.begin());
}

Action action_of(const CsvAction& cell) {
  Action action;
  action.op = kActionsOfCsv[static_cast<size_t>(cell.op)];
  action.stream = ir::stream_of(action.op);
  action.stage = cell.stage;
  action.replica = std::max(0, cell.replica);
  action.range = {cell.micro_batch, int64_t{cell.micro_batch} + 1};
  if (ir::is_compute(action.op)) return action;
  // A chain: stage s hands on over edge s and receives over edge s - 1.
  const bool below = cell.op == CsvOp::kSendForward || cell.op == CsvOp::kReceiveBackward;
  action.edge = below ? cell.stage : cell.stage - 1;
  action.peer_replica = action.replica;
  return action;
}

Diagnostic cannot_say(std::string message) {
  return Diagnostic{.code = Code::kUsage, .message = std::move(message), .hint = "use --format json or --format ir"};
}

/// Gives actions their tokens.
class Writer {
 public:
  Writer(const ir::StageGraph& graph, const ir::Schedule& schedule) : graph_(graph), starts_(graph.stages.size()) {
    for (const ir::Stage& stage : graph.stages) prefix_ = prefix_ || stage.choice.devices.size() > 1;
    for (const ir::Program& program : schedule.programs)
      for (const Action& action : program.actions)
        if (action.op == ActionOp::kForward) starts_[stage_of(action)].push_back(action.range);
    for (std::vector<ir::SampleRange>& starts : starts_)
      std::sort(starts.begin(), starts.end(), [](auto a, auto b) { return a.first < b.first; });
  }

  Status check(CsvLevel level) const {
    if (level == CsvLevel::kCommunication)
      for (const ir::StageEdge& edge : graph_.edges)
        if (edge.to.index() != edge.from.index() + 1)
          return cannot_say(text("stage ", edge.from, " feeds stage ", edge.to,
                                 ", and the CSV with communication knows only chains of stages"));
    return Ok{};
  }

  Result<CsvAction> token(const Action& action) const {
    const std::optional<CsvOp> op = csv_op(action.op);
    if (!op) return cannot_say(text("the CSV has no word for ", ir::print_action(action)));
    if (!ir::is_compute(action.op) && action.peer_replica != action.replica)
      return cannot_say(
          text(ir::print_action(action), " goes to or comes from another replica, which the CSV cannot say"));
    const std::vector<ir::SampleRange>& items = starts_[stage_of(action)];
    const auto item = std::lower_bound(items.begin(), items.end(), action.range.first,
                                       [](const ir::SampleRange& range, int64_t first) { return range.first < first; });
    if (item == items.end() || *item != action.range)
      return cannot_say(text(ir::print_action(action), " is no whole micro-batch, which the CSV cannot say"));
    return CsvAction{.op = *op,
                     .stage = action.stage,
                     .replica = prefix_ ? action.replica : -1,
                     .micro_batch = static_cast<int32_t>(item - items.begin())};
  }

  /// Whether the CSV writes the row at all.
  bool is_written(const Action& action, CsvLevel level) const {
    if (ir::is_compute(action.op)) return true;
    if (level == CsvLevel::kCompute || !ir::is_message(action.op)) return false;
    const ir::StageEdge& edge = graph_.edges[ir::EdgeId(static_cast<size_t>(action.edge))];
    const StageId other = edge.from == stage_of(action) ? edge.to : edge.from;
    return graph_.stages[other].choice.devices[static_cast<size_t>(action.peer_replica)] !=
           graph_.stages[stage_of(action)].choice.devices[static_cast<size_t>(action.replica)];
  }

 private:
  static StageId stage_of(const Action& action) { return StageId(static_cast<size_t>(action.stage)); }

  const ir::StageGraph& graph_;
  bool prefix_ = false;
  /// Per stage the ranges of its forwards, ascending.
  IdMap<StageId, std::vector<ir::SampleRange>> starts_;
};

}  // namespace

std::string token_of(const Action& action) {
  const std::optional<CsvOp> op = csv_op(action.op);
  GP_CHECK(op.has_value());
  return print_cell({.actions = {{.op = *op,
                                  .stage = action.stage,
                                  .replica = action.replica > 0 ? action.replica : -1,
                                  .micro_batch = static_cast<int32_t>(action.range.first)}},
                     .column = 0});
}

CsvOrders orders_of(const CsvSchedule& csv) {
  CsvOrders orders;
  for (size_t rank = 0; rank < csv.ranks.size(); ++rank) {
    ir::Program program{.device = ir::DeviceId(rank), .actions = {}};
    std::vector<int32_t>& cell_of = orders.cell_of.emplace_back();
    for (size_t cell = 0; cell < csv.ranks[rank].size(); ++cell) {
      const std::vector<CsvAction>& actions = csv.ranks[rank][cell].actions;
      for (size_t i = 0; i < actions.size(); ++i) {
        if (static_cast<size_t>(actions[i].op) >= kActionsOfCsv.size()) continue;
        program.actions.push_back(action_of(actions[i]));
        program.actions.back().overlaps_next = i + 1 < actions.size();
        cell_of.push_back(static_cast<int32_t>(cell));
        orders.has_messages = orders.has_messages || !ir::is_compute(program.actions.back().op);
      }
    }
    orders.schedule.programs.push_back(std::move(program));
  }
  return orders;
}

Result<CsvSchedule> csv_of(const ir::StageGraph& graph, const ir::Schedule& schedule, CsvLevel level) {
  const Writer writer(graph, schedule);
  GP_TRY_VOID(writer.check(level));
  CsvSchedule csv;
  for (const ir::Program& program : schedule.programs) {
    std::vector<CsvCell>& cells = csv.ranks.emplace_back();
    bool joins = false;
    for (const Action& action : program.actions) {
      if (!writer.is_written(action, level)) continue;
      GP_TRY(const CsvAction token, writer.token(action));
      if (joins) cells.back().actions.push_back(token);
      else cells.push_back({{token}, static_cast<int32_t>(cells.size())});
      joins = action.overlaps_next;
    }
  }
  return csv;
}

void merge_backwards(ir::Schedule& compute) {
  for (ir::Program& program : compute.programs) {
    std::vector<Action> merged;
    for (const Action& action : program.actions) {
      const bool joins = !merged.empty() && action.op == ActionOp::kWeightGradient &&
                         merged.back().op == ActionOp::kInputGradient && merged.back().stage == action.stage &&
                         merged.back().replica == action.replica && merged.back().range == action.range;
      if (joins) merged.back().op = ActionOp::kBackward;
      else merged.push_back(action);
    }
    program.actions = std::move(merged);
  }
}

}  // namespace graphpipe::files
