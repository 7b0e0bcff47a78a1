#include "partitioner/improve/plan_hill_climb.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "cost/iteration_time.h"
#include "partitioner/batch_stages.h"
#include "partitioner/heterogeneous/device_order.h"
#include "partitioner/improve/plan_devices.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

using ir::DeviceId;
using ir::PlanNodeId;
using ir::StageId;

/// A move stays only if the step becomes shorter than this share of what it was.
constexpr double kWorthwhile = 1 - 1e-6;
/// Plans whose step, by the closed form, is longer than the best plan's by more than this factor are not simulated.
constexpr double kFar = 1.03;
/// Moves try to relieve this many of the busiest stages.
constexpr size_t kBusiest = 3;

/// A plan, its stages and its step.
struct Tried {
  ir::Assignment assignment;
  ir::StageGraph stages;
  cost::IterationTime time;
  double step = kInfinity;
};

class HillClimb {
 public:
  HillClimb(const PlanRequest& request, ir::Assignment start, int64_t evaluations, Deadline& deadline)
      : request_(request), graph_(*request.graph), cluster_(*request.cluster), left_(evaluations), deadline_(deadline) {
    classes_ = device_classes(graph_, cluster_);
    differ_ = devices_differ(graph_, cluster_);
    has_levels_ = cluster_.levels.size() > 1;
    has_batch_nodes_ = graph_.has_batch_scope();
    if (auto tried = examine(std::move(start), false)) best_ = std::move(*tried);
  }

  ir::Assignment run() {
    using Move = bool (HillClimb::*)();
    constexpr Move kMoves[] = {&HillClimb::change_micro_batch,  &HillClimb::use_idle_devices,
                               &HillClimb::move_nodes,          &HillClimb::move_replicas,
                               &HillClimb::merge_stages,        &HillClimb::split_stages,
                               &HillClimb::share_devices,       &HillClimb::change_recompute,
                               &HillClimb::change_replica_mode, &HillClimb::exchange_devices};
    bool improved = std::isfinite(best_.step);
    while (improved && !is_over()) {
      improved = false;
      for (Move move : kMoves)
        while (!is_over() && (this->*move)()) improved = true;
    }
    return std::move(best_.assignment);
  }

 private:
  bool is_over() { return left_ <= 0 || deadline_.passed(); }

  bool may_replicate() const { return request_.replication && request_.replicas.empty(); }
  bool may_restage() const { return !request_.stages.has_value(); }

  bool is_on_the_cluster(const ir::Assignment& assignment) const {
    for (const ir::StageChoice& choice : assignment.choice)
      for (DeviceId device : choice.devices)
        if (device.index() >= cluster_.devices.size()) return false;
    return true;
  }

  /// The plan with its step, unless it is invalid or does not fit the memory.
  std::optional<Tried> examine(ir::Assignment assignment, bool renumber) {
    --left_;
    Tried tried;
    tried.assignment = std::move(assignment);
    set_recompute(request_, tried.assignment);
    auto stages = build_stage_graph(graph_, tried.assignment);
    if (!stages.ok()) return std::nullopt;
    if (!request_.replicas.empty()) {  // building the graph has renumbered the stages
      if (!force_replicas(request_, tried.assignment).ok()) return std::nullopt;
      stages = build_stage_graph(graph_, tried.assignment);
      if (!stages.ok()) return std::nullopt;
    }
    if (renumber) {
      renumber_devices(tried.assignment);
      for (StageId stage : stages->stage_ids()) stages->stages[stage].choice = tried.assignment.choice[stage];
    }
    if (!is_on_the_cluster(tried.assignment)) return std::nullopt;
    divide_states(request_, *stages, tried.assignment);
    tried.time = cost::iteration_time(*stages, cluster_);
    if (request_.limit_memory && !tried.time.fits) return std::nullopt;
    tried.step = step_of(tried, *stages);
    tried.stages = std::move(*stages);
    return tried;
  }

  /// Seconds of the step: simulated, or by the closed form where the request has no `evaluate`. Infinite, without
  /// simulation, if the plan cannot be the best or is far from it by the closed form.
  double step_of(const Tried& tried, const ir::StageGraph& stages) const {
    if (!request_.evaluate) return closed_form(request_, stages, tried.time);
    const bool is_hopeless = std::isfinite(best_.step) && (closed_form(request_, stages, tried.time) >
                                                               kFar * closed_form(request_, best_.stages, best_.time) ||
                                                           min_step_of_orders(request_, stages) > best_.step);
    return is_hopeless ? kInfinity : request_.evaluate(tried.assignment);
  }

  /// The micro-batch size that all stages share which do not work on the whole batch; nothing if they differ or some k
  /// is not 1.
  std::optional<Samples> common_micro_batch(const ir::Assignment& assignment) const {
    const IdMap<StageId, bool> of_batch = batch_stages(graph_, assignment);
    std::optional<Samples> size;
    for (StageId stage : ids<StageId>(assignment.choice.size())) {
      const ir::StageChoice& choice = assignment.choice[stage];
      if (of_batch[stage]) continue;
      if (choice.k != 1 || (size && *size != choice.micro_batch)) return std::nullopt;
      size = choice.micro_batch;
    }
    return size ? size : request_.micro_batch.value_or(graph_.batch);
  }

  /// Keeps the plan if it is better than the best; returns whether it was. A move that brings nodes that work on the
  /// whole batch into a stage, or takes them out, changes the stage's micro-batch, so the sizes are set anew.
  bool keep(ir::Assignment assignment) {
    if (has_batch_nodes_) {
      if (const auto size = common_micro_batch(best_.assignment); size.has_value())
        for (ir::StageChoice& choice : assignment.choice) choice.micro_batch = *size;
      give_whole_batch(graph_, assignment);
    }
    return keep_as_given(assignment);
  }

  /// As `keep`, with the micro-batches as given. Where links differ, the plan is also tried with its devices renumbered
  /// in the order of the stages.
  bool keep_as_given(const ir::Assignment& assignment) {
    for (bool renumber : {false, true}) {
      if (is_over() || (renumber && (!has_levels_ || differ_))) return false;
      auto tried = examine(assignment, renumber);
      if (!tried || !(tried->step < best_.step * kWorthwhile)) continue;
      best_ = std::move(*tried);
      return true;
    }
    return false;
  }

  /// Seconds per sample that the stage keeps its devices busy.
  double load_of(StageId stage) const { return cost::stage_cost(best_.stages, cluster_, stage).period(); }

  /// Stages from the busiest to the idlest, with the one that limits the step in front.
  std::vector<StageId> by_load() const {
    const auto costs = cost::stage_costs(best_.stages, cluster_);
    std::vector<StageId> order;
    for (StageId stage : best_.stages.stage_ids()) order.push_back(stage);
    std::stable_sort(order.begin(), order.end(),
                     [&](StageId a, StageId b) { return costs[a].period() > costs[b].period(); });
    const auto limiting = std::find(order.begin(), order.end(), best_.time.limiting);
    if (limiting != order.end()) std::rotate(order.begin(), limiting, limiting + 1);
    return order;
  }

  std::vector<StageId> busiest() const {
    std::vector<StageId> order = by_load();
    order.resize(std::min(order.size(), kBusiest));
    return order;
  }
  std::vector<StageId> idlest(size_t count) const {
    std::vector<StageId> order = by_load();
    std::reverse(order.begin(), order.end());
    order.resize(std::min(order.size(), count));
    return order;
  }

  // --- Nodes ---

  /// Moves nodes from the end or the start of a busy stage, first half of them, then a quarter, ..., then one, to a
  /// neighbour or into one of the idlest stages.
  bool move_nodes() {
    for (StageId stage : busiest()) {
      std::vector<StageId> targets = best_.stages.predecessors(stage);
      const std::vector<StageId> below = best_.stages.successors(stage);
      targets.insert(targets.end(), below.begin(), below.end());
      for (StageId idle : idlest(4))
        if (idle != stage && std::find(targets.begin(), targets.end(), idle) == targets.end()) targets.push_back(idle);
      for (StageId target : targets)
        if (move_ends(stage, target)) return true;
    }
    // Otherwise the cut of any value may move: its producer joins a stage that reads it.
    for (const ir::StageEdge& edge : std::vector<ir::StageEdge>(best_.stages.edges.begin(), best_.stages.edges.end())) {
      if (is_over()) return false;
      const PlanNodeId producer = graph_.values[edge.value].producer;
      ir::Assignment assignment = best_.assignment;
      assignment.stage_of[producer] = edge.to;
      if (best_.stages.stages[edge.from].nodes.size() > 1 && keep(assignment)) return true;
    }
    return false;
  }

  bool move_ends(StageId from, StageId to) {
    const std::vector<PlanNodeId> nodes = best_.stages.stages[from].nodes;
    for (bool last : {true, false})
      for (size_t count = std::max<size_t>(1, nodes.size() / 2); count > 0 && count < nodes.size(); count /= 2) {
        ir::Assignment assignment = best_.assignment;
        for (size_t i = 0; i < count; ++i) assignment.stage_of[nodes[last ? nodes.size() - 1 - i : i]] = to;
        if (keep(assignment)) return true;
      }
    // Then single nodes at the boundary to the other stage, which need not be at the ends.
    for (PlanNodeId node : nodes) {
      if (!touches(node, to) || nodes.size() < 2) continue;
      ir::Assignment assignment = best_.assignment;
      assignment.stage_of[node] = to;
      if (keep(assignment)) return true;
    }
    return false;
  }

  /// Whether the node reads from or feeds the stage.
  bool touches(PlanNodeId node, StageId stage) const {
    for (const ir::StageEdge& edge : best_.stages.edges) {
      const ir::PlanValue& value = graph_.values[edge.value];
      if (edge.to == stage && value.producer == node) return true;
      if (edge.from == stage && std::binary_search(value.readers.begin(), value.readers.end(), node)) return true;
    }
    return false;
  }

  // --- Devices ---

  bool use_idle_devices() {
    const size_t used = devices_used(best_.assignment);
    if (used >= cluster_.devices.size()) return false;
    for (StageId stage : busiest()) {
      if (may_replicate()) {
        // One more may not make the largest share smaller, so 2, 4, ... are tried too.
        for (size_t more = 1; more <= cluster_.devices.size() - used; more *= 2) {
          ir::Assignment assignment = best_.assignment;
          for (size_t i = 0; i < more; ++i) add_replica(assignment, stage);
          if (keep(assignment)) return true;
        }
      }
      if (split_stage(stage)) return true;
    }
    return false;
  }

  static void add_replica(ir::Assignment& assignment, StageId stage) {
    const DeviceId fresh = fresh_device(assignment);
    assignment.choice[stage].devices.push_back(fresh);
  }

  bool move_replicas() {
    if (!may_replicate()) return false;
    for (StageId to : busiest())
      for (StageId from : idlest(6)) {
        if (from == to || best_.assignment.choice[from].devices.size() < 2) continue;
        ir::Assignment assignment = best_.assignment;
        assignment.choice[from].devices.pop_back();
        add_replica(assignment, to);
        if (keep(assignment)) return true;
      }
    return false;
  }

  // --- Stages ---

  /// Merges two of the idlest stages. The devices that this frees go to the busiest stage, as replicas or to split it.
  bool merge_stages() {
    if (!may_restage()) return false;
    const std::vector<StageId> idle = idlest(6);
    const StageId busy = by_load().front();
    for (size_t a = 0; a < idle.size(); ++a)
      for (size_t b = 0; b < idle.size(); ++b) {
        const StageId low = idle[a], high = idle[b];
        if (!(low < high)) continue;
        ir::Assignment merged = best_.assignment;
        for (StageId& stage : merged.stage_of)
          if (stage == high) stage = low;
        const auto less = [&](StageId s) { return s < high ? s : StageId(s.index() - 1); };
        const std::vector<DeviceId> freed = merged.choice[high].devices;
        IdMap<StageId, ir::StageChoice> choice;
        for (StageId stage : ids<StageId>(merged.choice.size()))
          if (stage != high) choice.push_back(merged.choice[stage]);
        merged.choice = std::move(choice);
        for (StageId& stage : merged.stage_of) stage = less(stage);
        if (keep(merged)) return true;
        if (may_replicate()) {
          ir::Assignment helped = merged;
          std::vector<DeviceId>& own = helped.choice[less(busy == high ? low : busy)].devices;
          for (DeviceId device : freed)
            if (std::find(own.begin(), own.end(), device) == own.end()) own.push_back(device);
          if (keep(helped)) return true;
        }
        if (busy != low && busy != high && split_of(std::move(merged), less(busy))) return true;
      }
    return false;
  }

  bool split_stages() {
    if (!may_restage()) return false;
    for (StageId stage : busiest())
      if (split_stage(stage)) return true;
    return false;
  }

  bool split_stage(StageId stage) { return may_restage() && split_of(best_.assignment, stage); }

  /// Splits a stage in topological order into two that divide its devices, and an idle one if there is one; each gets
  /// work in proportion to its devices.
  bool split_of(ir::Assignment assignment, StageId stage) {
    std::vector<PlanNodeId> nodes;
    double all = 0;
    const double samples = static_cast<double>(assignment.choice[stage].micro_batch.count);
    const auto seconds = [&](PlanNodeId id) {
      const ir::PlanNode& node = graph_.nodes[id];
      return node.total(samples);
    };
    for (PlanNodeId node : graph_.node_ids())
      if (assignment.stage_of[node] == stage) {
        nodes.push_back(node);
        all += seconds(node);
      }
    if (nodes.size() < 2) return false;
    const std::vector<DeviceId> devices = assignment.choice[stage].devices;
    const bool has_idle = devices_used(assignment) < cluster_.devices.size();
    const size_t total = devices.size() + (has_idle ? 1 : 0);
    for (size_t upper = 1; upper < total; upper = upper < total / 2 ? total / 2 : total) {
      ir::Assignment cut = assignment;
      ir::StageChoice second = cut.choice[stage];
      std::vector<DeviceId> given = devices;
      if (has_idle) given.push_back(fresh_device(cut));
      cut.choice[stage].devices.assign(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(upper));
      second.devices.assign(given.begin() + static_cast<std::ptrdiff_t>(upper), given.end());
      const StageId added = cut.choice.push_back(std::move(second));
      double sum = 0;
      size_t kept = 0;
      while (
          kept + 1 < nodes.size() &&
          (kept == 0 || sum + seconds(nodes[kept]) / 2 < all * static_cast<double>(upper) / static_cast<double>(total)))
        sum += seconds(nodes[kept++]);
      for (size_t i = kept; i < nodes.size(); ++i) cut.stage_of[nodes[i]] = added;
      if (keep(cut)) return true;
    }
    return false;
  }

  /// A small stage moves onto the device of another and runs in its idle time; the device that this frees helps the
  /// busiest stage.
  bool share_devices() {
    if (!may_restage() || !request_.replicas.empty()) return false;
    const std::vector<StageId> idle = idlest(5);
    const StageId busy = by_load().front();
    for (StageId guest : idle)
      for (StageId host : idle) {
        const auto& guests = best_.assignment.choice[guest].devices;
        const auto& hosts = best_.assignment.choice[host].devices;
        if (guest == host || guests == hosts || guests.size() != 1 || hosts.size() != 1) continue;
        if (guest == busy || host == busy || load_of(guest) > load_of(host)) continue;
        const bool frees = !shares_device(best_.assignment, guest);
        ir::Assignment shared = best_.assignment;
        shared.choice[guest].devices = hosts;
        if (frees && may_replicate()) {
          ir::Assignment helped = shared;
          helped.choice[busy].devices.push_back(guests.front());
          if (keep(helped)) return true;
        }
        if (frees && split_of(shared, busy)) return true;
      }
    return false;
  }

  // --- Sizes, replicas that take turns, recomputation ---

  /// Replicas take whole micro-batches in turn instead of sharing each one, or the other way round.
  bool change_replica_mode() {
    if (!may_replicate()) return false;
    for (StageId stage : busiest()) {
      ir::Assignment assignment = best_.assignment;
      ir::StageChoice& choice = assignment.choice[stage];
      if (choice.devices.size() < 2) continue;
      const bool is_split = choice.mode == ir::ReplicaMode::kSplit;
      choice.mode = is_split ? ir::ReplicaMode::kRoundRobin : ir::ReplicaMode::kSplit;
      if (keep(assignment)) return true;
    }
    return false;
  }

  bool change_micro_batch() {
    if (request_.micro_batch) return false;
    const std::optional<Samples> common = common_micro_batch(best_.assignment);
    if (!common) return false;
    const int64_t size = common->count;
    std::set<Samples> sizes{Samples(2 * size), Samples(size / 2)};
    for (const Samples other : neighbouring_sizes(graph_.batch, *common)) sizes.insert(other);
    for (const Samples other : sizes) {
      if (other.count < 1 || other > graph_.batch || other == *common) continue;
      ir::Assignment assignment = best_.assignment;
      for (ir::StageChoice& choice : assignment.choice) choice.micro_batch = other;
      give_whole_batch(graph_, assignment);
      if (keep_as_given(assignment)) return true;
    }
    return false;
  }

  /// Turning recomputation off saves work. Turning it on, where memory limits the samples in flight, allows more of
  /// them.
  bool change_recompute() {
    if (request_.recompute != Recompute::kAuto) return false;
    for (StageId stage : best_.stages.stage_ids()) {
      if (is_over()) return false;
      if (!best_.assignment.choice[stage].recompute && !is_short_of_memory()) continue;
      ir::Assignment assignment = best_.assignment;
      assignment.choice[stage].recompute = !assignment.choice[stage].recompute;
      if (keep(assignment)) return true;
    }
    return false;
  }

  bool is_short_of_memory() const { return cost::in_flight(best_.stages, cluster_).slowdown() > 1.001; }

  // --- Places ---

  /// Exchanges single devices where devices differ, and all devices of two stages that have equally many where links
  /// differ.
  bool exchange_devices() {
    if (differ_ && exchange_unequal()) return true;
    if (!has_levels_) return false;
    const size_t count = best_.assignment.choice.size();
    for (StageId a : by_load())
      for (StageId b : ids<StageId>(count)) {
        if (is_over()) return false;
        const auto &one = best_.assignment.choice[a].devices, &other = best_.assignment.choice[b].devices;
        if (!(a < b) || one.size() != other.size() || one == other) continue;
        ir::Assignment assignment = best_.assignment;
        std::swap(assignment.choice[a].devices, assignment.choice[b].devices);
        if (keep(assignment)) return true;
      }
    return false;
  }

  /// Exchanges a device of a stage for one of another class, which another stage has or which is idle.
  bool exchange_unequal() {
    for (const StageId stage : by_load())
      for (size_t replica = 0; replica < best_.assignment.choice[stage].devices.size(); ++replica)
        for (const DeviceId other : ids<DeviceId>(cluster_.devices.size())) {
          if (is_over()) return false;
          const DeviceId own = best_.assignment.choice[stage].devices[replica];
          if (classes_[own.index()] == classes_[other.index()]) continue;
          ir::Assignment assignment = best_.assignment;
          for (ir::StageChoice& choice : assignment.choice)
            for (DeviceId& device : choice.devices) {
              if (device == own) device = other;
              else if (device == other) device = own;
            }
          if (keep(assignment)) return true;
        }
    return false;
  }

  const PlanRequest& request_;
  const ir::PlanGraph& graph_;
  const ir::Cluster& cluster_;
  std::vector<int> classes_;  // of devices, by speed and memory
  bool differ_ = false;
  int64_t left_;
  Deadline& deadline_;
  bool has_levels_ = false, has_batch_nodes_ = false;
  Tried best_;
};

}  // namespace

ir::Assignment hill_climb(const PlanRequest& request, ir::Assignment start, int64_t evaluations, Deadline& deadline) {
  ir::Assignment as_given = start;
  HillClimb search(request, std::move(start), evaluations, deadline);
  ir::Assignment improved = search.run();
  return improved.choice.empty() ? as_given : improved;
}

}  // namespace graphpipe::partitioner
