#include "scheduler/validate/peak_memory.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "scheduler/validate/item_bytes.h"

namespace graphpipe::scheduler::check {
namespace {

/// A list has two moments per action: while it runs, and after it.
constexpr size_t during(size_t position) { return 2 * position; }
constexpr size_t behind(size_t position) { return 2 * position + 1; }

/// Bytes that are held in moments [from, to). Negative bytes take back a part of what another lifetime counts.
struct Lifetime {
  size_t from, to;
  Bytes bytes;
};

/// What items of one size hold, looked up once.
class Sizes {
 public:
  Sizes(const Tables& tables, const MemoryOptions& options)
      : tables_(tables),
        options_(options),
        whole_backwards_(ir::undivided_backwards(tables.schedule, tables.graph.stages.size())) {}

  bool are_counted() const { return options_.item != nullptr; }

  const ItemBytes& priced(const Action& action) {
    const auto [place, is_new] = priced_.try_emplace({action.stage, action.range.size()});
    if (is_new) place->second = item_bytes(tables_.graph, stage_of(action), Samples(action.range.size()));
    return place->second;
  }

  const ir::ItemMemory& counted(const Action& action) {
    const auto [place, is_new] = counted_.try_emplace({action.stage, action.range.size()});
    const StageId stage = stage_of(action);
    if (is_new) place->second = options_.item(stage, Samples(action.range.size()), whole_backwards_.contains(stage));
    return place->second;
  }

  static StageId stage_of(const Action& action) { return StageId(static_cast<size_t>(action.stage)); }

 private:
  using Key = std::pair<int32_t, int64_t>;
  const Tables& tables_;
  const MemoryOptions& options_;
  IdSet<StageId> whole_backwards_;
  std::map<Key, ItemBytes> priced_;
  std::map<Key, ir::ItemMemory> counted_;
};

/// The positions in a program of the actions of one replica that concern its weights.
struct Updates {
  std::vector<size_t> reductions, steps, frees;
  /// The actions that make weight gradients, by the first sample of their update.
  std::map<int64_t, std::vector<size_t>> gradients;
  /// Per version: the last action that computes with it.
  std::map<int32_t, size_t> last_read;
};

class ProgramMemory {
 public:
  ProgramMemory(const Tables& tables, Sizes& sizes, size_t program)
      : tables_(tables),
        sizes_(sizes),
        actions_(tables.schedule.programs[program].actions),
        item_of_(tables.item_of[program]) {
    find_updates();
    add_items();
    for (const auto& [replica, updates] : updates_) {
      const StageId stage(static_cast<size_t>(replica.first));
      add_versions(stage, updates);
      add_reductions(stage, updates);
      for (const size_t step : updates.steps)
        lifetimes_.push_back({during(step), behind(step), tables_.graph.stages[stage].update_scratch});
      if (!sizes_.are_counted()) continue;
      add_weight_gradients(updates);
      add_gradients_of_others(stage, updates);
    }
  }

  PeakMemory peak(Bytes fixed) const {
    std::vector<Bytes> change(2 * actions_.size() + 1);
    for (const Lifetime& life : lifetimes_) {
      change[life.from] += life.bytes;
      change[life.to] -= life.bytes;
    }
    PeakMemory peak{.bytes = fixed};
    Bytes held = fixed;
    for (size_t i = 0; i < actions_.size(); ++i) {
      held += change[during(i)];
      if (held > peak.bytes) peak = {held, i};
      held += change[behind(i)];
    }
    return peak;
  }

 private:
  using Positions = std::vector<size_t>;

  size_t end() const { return 2 * actions_.size(); }

  void add_items() {
    std::map<int, Positions> items;
    for (size_t i = 0; i < actions_.size(); ++i)
      if (item_of_[i] >= 0) items[item_of_[i]].push_back(i);
    for (const auto& [item, positions] : items) {
      std::vector<Lifetime> own;
      for (const size_t at : positions) {
        const Action& action = actions_[at];
        if (ir::is_receive(action.op)) own.push_back({during(at), behind(positions.back()), received(action)});
        else if (ir::is_compute(action.op) && sizes_.are_counted()) add_counted(own, at, positions.back());
        else if (ir::is_compute(action.op))
          add_priced(own, tables_.items[static_cast<size_t>(item)], at, positions.back());
      }
      move_away(own, positions);
      for (const Lifetime& life : own)
        if (life.from < life.to) lifetimes_.push_back(life);
    }
  }

  Bytes received(const Action& action) const {
    const ir::StageEdge& edge = tables_.graph.edges[ir::EdgeId(static_cast<size_t>(action.edge))];
    return message_bytes(edge, ir::is_backward_message(action.op), Samples(action.range.size()));
  }

  /// As counted over the code of its stage: the peak while it runs, then what it leaves, up to the item's end.
  void add_counted(std::vector<Lifetime>& own, size_t at, size_t last) {
    const ir::FunctionMemory& function = function_at(at);
    own.push_back({during(at), behind(at), function.peak});
    own.push_back({behind(at), behind(last), function.left});
  }

  const ir::FunctionMemory& function_at(size_t at) {
    const Action& action = actions_[at];
    const ir::ItemMemory& item = sizes_.counted(action);
    const bool is_first = ir::makes_weight_gradients(action.op) && is_first_of_update(at);
    switch (action.op) {
      case ActionOp::kForward:
        return item.forward;
      case ActionOp::kRecompute:
        return item.again;
      case ActionOp::kInputGradient:
        return item.input_gradient;
      case ActionOp::kBackward:
        return is_first ? item.first_backward : item.backward;
      default:
        return is_first ? item.first_weight_gradient : item.weight_gradient;
    }
  }

  /// As priced by the functions of its stage.
  void add_priced(std::vector<Lifetime>& own, const CheckedItem& item, size_t at, size_t last) {
    const Action& action = actions_[at];
    const ir::Stage& stage = tables_.graph.stages[item.stage];
    const ItemBytes& bytes = sizes_.priced(action);
    const auto backward = static_cast<size_t>(std::max(item.backward, 0));
    own.push_back({during(at), behind(at), bytes.workspace});
    if (action.op == ActionOp::kForward) {
      const bool keeps = stage.has_backward && !stage.choice.recompute;
      own.push_back({during(at), behind(last), bytes.outputs});
      own.push_back({during(at), behind(keeps ? backward : at), bytes.stash});
    } else if (action.op == ActionOp::kRecompute) {
      own.push_back({during(at), behind(backward), bytes.stash});
    } else if (action.op != ActionOp::kWeightGradient) {
      own.push_back({during(at), behind(last), bytes.gradients});
      own.push_back({during(at), behind(at), bytes.made_by_first_half});
      own.push_back({behind(at), behind(static_cast<size_t>(item.weight_gradient)), bytes.between_halves});
    }
  }

  /// What lives when an offload runs is elsewhere until the reload.
  void move_away(std::vector<Lifetime>& own, const Positions& positions) {
    for (size_t i = 0; i < positions.size(); ++i) {
      if (actions_[positions[i]].op != ActionOp::kOffload) continue;
      const auto back = std::find_if(positions.begin() + static_cast<ptrdiff_t>(i), positions.end(),
                                     [&](size_t at) { return actions_[at].op == ActionOp::kReload; });
      const size_t away = behind(positions[i]), returned = back == positions.end() ? end() : during(*back);
      const size_t lives = own.size();
      for (size_t life = 0; life < lives; ++life) {
        if (own[life].from >= away || own[life].to <= away) continue;
        own.push_back({returned, own[life].to, own[life].bytes});
        own[life].to = away;
      }
    }
  }

  void find_updates() {
    for (size_t i = 0; i < actions_.size(); ++i) {
      Updates& updates = updates_[ir::replica_key(actions_[i])];
      const ActionOp op = actions_[i].op;
      if (op == ActionOp::kReduceGradient) updates.reductions.push_back(i);
      if (op == ActionOp::kStep) updates.steps.push_back(i);
      if (op == ActionOp::kFreeVersion) updates.frees.push_back(i);
      if (ir::is_compute(op)) updates.last_read[actions_[i].version] = i;
    }
    for (size_t i = 0; i < actions_.size(); ++i)
      if (ir::makes_weight_gradients(actions_[i].op)) {
        Updates& updates = updates_[ir::replica_key(actions_[i])];
        updates.gradients[update_of(updates, actions_[i])].push_back(i);
      }
  }

  /// The first sample of the update that the item belongs to; 0 where nothing steps.
  int64_t update_of(const Updates& updates, const Action& action) const {
    int64_t update = 0;
    for (const size_t step : updates.steps)
      if (actions_[step].range.first <= action.range.first) update = std::max(update, actions_[step].range.first);
    return update;
  }

  bool is_first_of_update(size_t at) const {
    const Updates& updates = updates_.at(ir::replica_key(actions_[at]));
    return updates.gradients.at(update_of(updates, actions_[at])).front() == at;
  }

  /// The first of these positions after `at` for which `holds` is true, if any.
  template <typename Holds>
  static std::optional<size_t> first_behind(const Positions& positions, size_t at, Holds holds) {
    for (const size_t position : positions)
      if (position > at && holds(position)) return position;
    return std::nullopt;
  }

  /// A step that makes a version while the old one is still to be read works on a copy, which its release drops.
  void add_versions(StageId stage, const Updates& updates) {
    for (const size_t step : updates.steps) {
      const int32_t old = actions_[step].version - 1;
      const auto read = updates.last_read.find(old);
      if (read == updates.last_read.end() || read->second < step) continue;
      const auto freed = first_behind(updates.frees, step, [&](size_t at) { return actions_[at].version == old; });
      lifetimes_.push_back(
          {during(step), freed ? behind(*freed) : end(), tables_.graph.stages[stage].trainable_weight_bytes});
    }
  }

  /// Each reduction up to the step of its update; the next one uses the same space.
  void add_reductions(StageId stage, const Updates& updates) {
    const Bytes bytes = bytes_of_reduction(tables_.graph, stage);
    size_t taken = 0;
    for (const size_t at : updates.reductions) {
      const auto step =
          first_behind(updates.steps, at, [&](size_t other) { return actions_[other].range == actions_[at].range; });
      const size_t from = std::max(taken, during(at)), to = step ? during(*step) : end();
      if (from < to) lifetimes_.push_back({from, to, bytes});
      taken = std::max(taken, to);
    }
  }

  /// The gradients of an update live from the item that makes them to the step of a later update. Rows of tables that
  /// this item did not look up come with the next item, or when the update is reduced or made.
  void add_weight_gradients(const Updates& updates) {
    for (const auto& [update, positions] : updates.gradients) {
      const int64_t first_sample = update;
      const size_t made = positions.front();
      const ir::ItemMemory& item = sizes_.counted(actions_[made]);
      const auto replaced =
          first_behind(updates.steps, made, [&](size_t at) { return actions_[at].range.first > first_sample; });
      const size_t gone = replaced ? behind(*replaced) : end();
      lifetimes_.push_back({behind(made), gone, item.weight_gradients});
      const auto is_own = [&](size_t at) { return actions_[at].range.first == first_sample; };
      size_t complete = positions.size() > 1 ? behind(positions[1]) : gone;
      for (const Positions* of : {&updates.reductions, &updates.steps})
        if (const auto at = first_behind(*of, made, is_own)) complete = std::min(complete, during(*at));
      if (complete < gone) lifetimes_.push_back({complete, gone, item.other_rows});
    }
  }

  /// An update for which this replica makes no gradients is reduced into a sum of all weights, which lives as long.
  void add_gradients_of_others(StageId stage, const Updates& updates) {
    for (const size_t at : updates.reductions) {
      const int64_t update = actions_[at].range.first;
      if (updates.gradients.contains(update)) continue;
      const auto replaced =
          first_behind(updates.steps, at, [&](size_t step) { return actions_[step].range.first > update; });
      lifetimes_.push_back(
          {during(at), replaced ? behind(*replaced) : end(), tables_.graph.stages[stage].trainable_weight_bytes});
    }
  }

  const Tables& tables_;
  Sizes& sizes_;
  const std::vector<Action>& actions_;
  const std::vector<int>& item_of_;
  std::map<ir::ReplicaKey, Updates> updates_;
  std::vector<Lifetime> lifetimes_;
};

/// Weights, with the gradients and optimizer state that are there from the first action to the last, of all stages on
/// each device.
std::map<ir::DeviceId, Bytes> fixed_bytes(const Tables& tables, const MemoryOptions& options) {
  std::map<ir::DeviceId, Bytes> fixed;
  for (const ir::Stage& stage : tables.graph.stages) {
    const auto shards =
        static_cast<double>(stage.choice.shard_optimizer_state ? stage.choice.devices.size() : size_t{1});
    const double gradients = options.item ? 0 : 1;
    const double trained = stage.has_backward ? static_cast<double>(stage.trainable_weight_bytes.count) : 0;
    const double beside = trained * (gradients + options.optimizer_state_per_weight_byte / shards);
    for (const ir::DeviceId device : stage.choice.devices)
      fixed[device] += stage.weight_bytes + Bytes(std::llround(beside));
  }
  return fixed;
}

}  // namespace

std::vector<PeakMemory> peak_memory(const Tables& tables, const MemoryOptions& options) {
  const std::map<ir::DeviceId, Bytes> fixed = fixed_bytes(tables, options);
  Sizes sizes(tables, options);
  std::vector<PeakMemory> peaks;
  for (size_t p = 0; p < tables.schedule.programs.size(); ++p) {
    const auto held = fixed.find(tables.schedule.programs[p].device);
    peaks.push_back(ProgramMemory(tables, sizes, p).peak(held == fixed.end() ? Bytes(0) : held->second));
  }
  return peaks;
}

}  // namespace graphpipe::scheduler::check
