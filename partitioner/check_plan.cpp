#include "partitioner/check_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;
using ir::StageId;

class Checker {
 public:
  Checker(const ir::PlanGraph& graph, const ir::Cluster& cluster, const ir::Assignment& assignment,
          const CheckOptions& options)
      : graph_(graph), cluster_(cluster), plan_(assignment), options_(options) {}

  Diagnostics run() {
    check_placement();
    if (!problems_.empty()) return std::move(problems_);
    check_choices();
    check_execution();
    if (options_.ordered) check_order();
    if (!problems_.empty()) return std::move(problems_);
    check_mixing();
    if (options_.limit_memory) check_memory();
    if (!std::isnan(options_.objective)) check_objective();
    if (options_.recompute != Recompute::kAuto) check_recompute();
    return std::move(problems_);
  }

 private:
  template <typename... Parts>
  void report(const Parts&... parts) {
    problems_.push_back({.code = Code::kBadPlan, .message = text(parts...), .hint = "correct the plan or plan again"});
  }

  size_t stages() const { return plan_.choice.size(); }
  size_t stage_of(PlanNodeId node) const { return plan_.stage_of[node].index(); }
  const ir::StageChoice& choice(size_t stage) const { return plan_.choice[StageId(stage)]; }
  double replicas(size_t stage) const { return static_cast<double>(choice(stage).devices.size()); }
  bool is_split(size_t stage) const { return choice(stage).mode == ir::ReplicaMode::kSplit; }
  /// Samples in one item, the share of a micro-batch that one replica takes.
  double item(size_t stage) const {
    const double size = static_cast<double>(choice(stage).micro_batch.count);
    return is_split(stage) ? std::ceil(size / replicas(stage)) : size;
  }

  void check_placement() {
    if (plan_.stage_of.size() != graph_.nodes.size())
      return report("the plan places ", plan_.stage_of.size(), " of ", graph_.nodes.size(),
                    " nodes; their number follows from the model and from the fields loss, dropout and batch_norm");
    if (options_.stages > 0 && stages() != static_cast<size_t>(options_.stages))
      report("the plan has ", stages(), " stages, ", options_.stages, " were asked for");
    std::set<size_t> used;
    for (PlanNodeId node : graph_.node_ids()) {
      if (stage_of(node) >= stages()) return report("node ", node, " is in no stage");
      used.insert(stage_of(node));
    }
    for (size_t stage = 0; stage < stages(); ++stage)
      if (!used.contains(stage)) report("stage ", stage, " has no nodes");
    for (const auto& set : graph_.colocated)
      for (PlanNodeId node : set)
        if (stage_of(node) != stage_of(set.front())) report("nodes ", set.front(), " and ", node, " are apart");
  }

  void check_choices() {
    std::vector<bool> sees_batch(stages(), false);
    for (PlanNodeId node : graph_.node_ids())
      if (graph_.nodes[node].scope == ir::SampleScope::kBatch) sees_batch[stage_of(node)] = true;
    std::map<ir::DeviceId, size_t> holder;
    for (size_t stage = 0; stage < stages(); ++stage) {
      const ir::StageChoice& chosen = choice(stage);
      if (chosen.devices.empty()) report("stage ", stage, " has no device");
      if (chosen.micro_batch.count < 1 || chosen.micro_batch.count > graph_.batch.count)
        report("stage ", stage, " has a micro-batch of ", chosen.micro_batch);
      if (chosen.k < 1) report("stage ", stage, " has k = ", chosen.k);
      std::set<ir::DeviceId> own;
      for (ir::DeviceId device : devices_of(chosen)) {
        if (device.index() >= cluster_.devices.size()) report("stage ", stage, " is on a device that does not exist");
        if (!own.insert(device).second) report("stage ", stage, " names device ", device, " twice");
        if (sees_batch[stage]) continue;
        const auto [entry, is_new] = holder.try_emplace(device, stage);
        if (!is_new && entry->second != stage && options_.one_stage_per_device)
          report("device ", device, " holds stages ", entry->second, " and ", stage);
      }
    }
  }

  void check_recompute() {
    std::vector<bool> asked(stages(), false);
    if (options_.recompute == Recompute::kAlways)
      for (const ir::PlanNodeId id : graph_.node_ids())
        if (graph_.nodes[id].has_backward) asked[stage_of(id)] = true;
    for (size_t stage = 0; stage < stages(); ++stage)
      if (choice(stage).recompute != asked[stage])
        report("stage ", stage, asked[stage] ? " keeps" : " recomputes", " its activations, --recompute is ",
               recompute_name(options_.recompute));
  }

  /// The first device of each replica and, at a degree above 1, those that share the nodes with it.
  static std::vector<ir::DeviceId> devices_of(const ir::StageChoice& chosen) {
    std::vector<ir::DeviceId> devices;
    for (ir::DeviceId first : chosen.devices)
      for (int i = 0; i < std::max(1, chosen.degree); ++i) devices.emplace_back(first.index() + static_cast<size_t>(i));
    return devices;
  }

  /// Whether nodes can be executed as the plan says: on the kinds of the devices, at the degree of the stage.
  void check_execution() {
    for (size_t stage = 0; stage < stages(); ++stage)
      if (choice(stage).degree < 1) report("stage ", stage, " has the degree ", choice(stage).degree);
    if (!plan_.alternative.empty() && plan_.alternative.size() != graph_.nodes.size())
      return report("the plan chooses alternatives of ", plan_.alternative.size(), " of ", graph_.nodes.size(),
                    " nodes");
    for (PlanNodeId id : graph_.node_ids()) {
      const ir::PlanNode& node = graph_.nodes[id];
      const ir::StageChoice& chosen = choice(stage_of(id));
      const int way = plan_.alternative.empty() ? 0 : plan_.alternative[id];
      const int last = std::max(0, static_cast<int>(node.alternatives.size()) - 1);
      // A node without alternatives has only number 0: it runs as it stands.
      if (way < 0 || way > last) report("node ", id, " has no alternative ", way);
      else if (!plan_.alternative.empty() && !node.alternatives.empty() &&
               node.alternatives[static_cast<size_t>(way)].degree != chosen.degree)
        report("node ", id, " takes an alternative of degree ", node.alternatives[static_cast<size_t>(way)].degree,
               " in a stage of degree ", chosen.degree);
      if (plan_.alternative.empty() && chosen.degree > 1)
        report("node ", id, " has no price at the degree of its stage");
      for (ir::DeviceId device : devices_of(chosen))
        if (device.index() < graph_.kind_of_device.size() &&
            std::ranges::find(node.refused_kinds, graph_.kind_of_device[device.index()]) != node.refused_kinds.end())
          report("node ", id, " cannot run on device ", device);
    }
  }

  /// The transfer of a value from one stage to another.
  struct Hop {
    size_t from = 0, to = 0;
    bool back = false;  // whether a gradient returns
  };
  /// From the producer's stage to each stage that reads the value or, in a chain, from stage to stage down to the last
  /// of these.
  std::vector<Hop> hops_of(const ir::PlanValue& value) const {
    const size_t from = stage_of(value.producer);
    std::map<size_t, Hop> readers;  // by position in the chain
    for (PlanNodeId reader : value.readers) {
      const size_t to = stage_of(reader);
      if (to == from) continue;
      Hop& hop = readers[place_.empty() ? to : place_[to]];
      hop.from = from, hop.to = to;
      hop.back = hop.back || std::ranges::binary_search(value.gradient_readers, reader);
    }
    std::vector<Hop> hops;
    if (place_.empty())
      for (const auto& [place, hop] : readers) hops.push_back(hop);
    else if (!readers.empty())
      for (size_t place = place_[from] + 1; place <= readers.rbegin()->first; ++place) {
        const auto below = readers.lower_bound(place);
        const bool back = std::any_of(below, readers.end(), [](const auto& entry) { return entry.second.back; });
        hops.push_back({line_[place - 1], line_[place], back});
      }
    return hops;
  }

  std::vector<std::set<size_t>> stage_successors() const {
    std::vector<std::set<size_t>> next(stages());
    for (const ir::PlanValue& value : graph_.values)
      for (const Hop& hop : hops_of(value)) next[hop.from].insert(hop.to);
    return next;
  }

  /// Removes stages that no remaining stage feeds; what is left depends on itself. So convexity and acyclicity are
  /// checked at once.
  void check_order() {
    const std::vector<std::set<size_t>> next = stage_successors();
    std::vector<size_t> waiting(stages(), 0), free;
    for (const auto& below : next)
      for (size_t stage : below) ++waiting[stage];
    for (size_t stage = 0; stage < stages(); ++stage)
      if (waiting[stage] == 0) free.push_back(stage);
    std::vector<size_t> line;
    while (!free.empty()) {
      // Of the stages that may come next, a chain takes the one with the lowest node.
      const auto first = std::ranges::min_element(
          free, {}, [&](size_t stage) { return std::ranges::find(plan_.stage_of, StageId(stage)); });
      const size_t at = *first;
      free.erase(first);
      line.push_back(at);
      for (size_t stage : next[at])
        if (--waiting[stage] == 0) free.push_back(stage);
    }
    for (size_t stage = 0; stage < stages(); ++stage)
      if (waiting[stage] > 0) report("stage ", stage, " depends on itself, or follows one that does");
    if (graph_.execution != ir::Execution::kChain || line.size() != stages()) return;
    place_.resize(stages());
    for (size_t place = 0; place < line.size(); ++place) place_[line[place]] = place;
    line_ = std::move(line);
  }

  /// A node that works on samples together needs them in one place: the whole batch, or micro-batches that are large
  /// enough.
  void check_scope(PlanNodeId id) {
    const ir::PlanNode& node = graph_.nodes[id];
    if (graph_.one_sample && choice(stage_of(id)).micro_batch != Samples(1))
      report("node ", id, " computes one sample at a time, and its stage ", stage_of(id), " has micro-batches of ",
             choice(stage_of(id)).micro_batch);
    if (node.scope == ir::SampleScope::kEach) return;
    const ir::StageChoice& chosen = choice(stage_of(id));
    const auto refuse = [&](std::string what, std::string hint) {
      problems_.push_back({.code = Code::kBadPlan,
                           .origin = node.label,
                           .message = text("node ", id, " in stage ", stage_of(id), " ", what),
                           .hint = std::move(hint)});
    };
    const int64_t size = chosen.micro_batch.count, all = graph_.batch.count;
    const auto replicas = std::ssize(chosen.devices);
    if (replicas != 1 && !node.sums_over_replicas)
      refuse(text("works on samples together, and the stage has ", replicas, " replicas"), "give the stage one device");
    else if (replicas != 1 && !is_split(stage_of(id)))
      refuse("works on samples together, and the stage's replicas take whole micro-batches in turn",
             "let them split the micro-batches");
    if (node.scope == ir::SampleScope::kBatch && size < all)
      refuse(text("works on all ", all, " samples of the batch together, and the stage has micro-batches of ", size),
             text("give the stage a micro-batch of ", all,
                  ", or plan with --contrastive micro-batch or --batchnorm micro-batch"));
    for (int64_t first = 0; first < all; first += size)
      if (const int64_t here = std::min(size, all - first); here < node.fewest_samples)
        return refuse(
            text("learns nothing from fewer than ", node.fewest_samples, " samples, and a micro-batch has ", here),
            "use micro-batches of more samples, of which the batch is a multiple");
      else if (here < replicas)
        return refuse(text("works on samples together, and ", replicas, " replicas share a micro-batch of ", here),
                      "give each replica a sample");
  }

  void check_mixing() {
    for (PlanNodeId id : graph_.node_ids()) check_scope(id);
    for (const ir::PlanValue& value : graph_.values)
      for (const auto& [from, to, back] : hops_of(value)) {
        if (value.batch != ir::BatchKind::kMixed) continue;
        if (replicas(from) != 1 || replicas(to) != 1 || choice(from).micro_batch != choice(to).micro_batch)
          report("a mixed value crosses from stage ", from, " to stage ", to);
      }
  }

  /// The fewest samples that each stage must hold in flight: GraphPipe's condition for no deadlock, applied to each
  /// hop.
  std::vector<int64_t> fewest_in_flight() const {
    const std::vector<std::set<size_t>> next = stage_successors();
    std::vector<int64_t> samples(stages(), 0);
    const auto round = [&](size_t stage) {
      const int64_t parallel = is_split(stage) ? 1 : static_cast<int64_t>(choice(stage).devices.size());
      return choice(stage).micro_batch.count * choice(stage).k * parallel;
    };
    // Each sweep settles at least one more stage of every path, so there are at most as many as stages.
    bool changed = true;
    for (size_t sweep = 0; sweep < stages() && changed; ++sweep) {
      changed = false;
      for (size_t stage = stages(); stage-- > 0;) {
        const int64_t before = samples[stage];
        const int64_t size = choice(stage).micro_batch.count;
        int64_t min_samples = round(stage);
        for (size_t below : next[stage])
          min_samples = std::max(min_samples, samples[below] + round(stage) - std::gcd(round(stage), round(below)));
        const int64_t max_samples = (graph_.batch.count + size - 1) / size * size;
        samples[stage] = std::min((min_samples + size - 1) / size * size, max_samples);
        changed = changed || samples[stage] != before;
      }
    }
    return samples;
  }

  /// Bytes of all weights and buffers of each stage, of its trainable weights, and what one item leaves for its
  /// backward.
  struct Holdings {
    double weights = 0, trainable = 0, stash = 0;
  };
  std::vector<Holdings> holdings() const {
    std::vector<Holdings> held(stages());
    std::vector<std::set<ir::WeightGroupId>> groups(stages());
    for (PlanNodeId id : graph_.node_ids()) {
      const ir::PlanNode& node = graph_.nodes[id];
      const size_t stage = stage_of(id);
      held[stage].weights += static_cast<double>(node.buffer_bytes.count);
      held[stage].stash += node.stash_to_input_gradient.at(item(stage));
      groups[stage].insert(node.weights.begin(), node.weights.end());
    }
    for (size_t stage = 0; stage < stages(); ++stage)
      for (ir::WeightGroupId group : groups[stage]) {
        const double bytes = static_cast<double>(graph_.weight_groups[group].bytes.count);
        held[stage].weights += bytes;
        if (graph_.weight_groups[group].trainable) held[stage].trainable += bytes;
      }
    for (const ir::PlanValue& value : graph_.values) {
      std::set<size_t> savers;
      for (PlanNodeId node : value.saved_by_input_gradient) savers.insert(stage_of(node));
      for (PlanNodeId node : value.saved_by_weight_gradient) savers.insert(stage_of(node));
      for (size_t stage : savers) held[stage].stash += value.bytes.at(item(stage));
    }
    return held;
  }

  void check_memory() {
    const std::vector<int64_t> in_flight = fewest_in_flight();
    const std::vector<Holdings> held = holdings();
    std::vector<double> load(cluster_.devices.size(), 0);
    for (size_t stage = 0; stage < stages(); ++stage) {
      double items =
          std::ceil(static_cast<double>(in_flight[stage]) / static_cast<double>(choice(stage).micro_batch.count));
      if (!is_split(stage)) items = std::ceil(items / replicas(stage));
      const double state =
          graph_.optimizer_state_per_weight_byte / (choice(stage).shard_optimizer_state ? replicas(stage) : 1.0);
      const double kept = choice(stage).recompute ? 0 : items * held[stage].stash;
      for (ir::DeviceId device : choice(stage).devices)
        load[device.index()] += held[stage].weights + held[stage].trainable * (1 + state) + kept;
    }
    for (size_t device = 0; device < load.size(); ++device) {
      const double lacking = load[device] - static_cast<double>(cluster_.devices[ir::DeviceId(device)].memory.count);
      if (lacking > 0.5) report("device ", device, " lacks ", std::ceil(lacking), " bytes");
    }
  }

  double message(size_t a, size_t b, double bytes) const {
    ir::DeviceId low = choice(a).devices.front(), high = low;
    for (size_t stage : {a, b})
      for (ir::DeviceId device : choice(stage).devices) {
        low = std::min(low, device);
        high = std::max(high, device);
      }
    if (bytes <= 0 || low == high) return 0;
    const ir::LinkLevel& link = cluster_.link(low, high);
    return bytes / link.bandwidth.count;
  }

  /// Per stage, the seconds that the messages of one item occupy their link: each distinct value that comes in or goes
  /// out, with its gradient.
  std::vector<double> messages() const {
    std::vector<double> seconds(stages(), 0);
    for (const ir::PlanValue& value : graph_.values) {
      std::map<size_t, std::pair<double, double>> sent;  // by sender: its slowest message down and back
      for (const auto& [from, to, back] : hops_of(value)) {
        seconds[to] += message(from, to, value.bytes.at(item(to)));
        if (back) seconds[to] += message(from, to, value.gradient_bytes.at(item(to)));
        auto& [down, up] = sent[from];
        down = std::max(down, message(from, to, value.bytes.at(item(from))));
        if (back) up = std::max(up, message(from, to, value.gradient_bytes.at(item(from))));
      }
      for (const auto& [from, ways] : sent) seconds[from] += ways.first + ways.second;
    }
    return seconds;
  }

  /// Per stage, the seconds of one item's work on the given device.
  std::vector<double> work_on(const std::vector<size_t>& device_of_stage) const {
    std::vector<double> seconds(stages(), 0);
    for (PlanNodeId id : graph_.node_ids()) {
      const size_t stage = stage_of(id);
      const ir::PassSeconds price = graph_.seconds_on(graph_.nodes[id], device_of_stage[stage]);
      // Replicas exchange sums once in a forward and once in an input gradient, in rounds that double who knows them.
      double exchange = 0;
      for (size_t known = 1; known < choice(stage).devices.size(); known *= 2)
        exchange += graph_.nodes[id].exchange_seconds;
      const double forward = price.forward.at(item(stage)) + exchange;
      seconds[stage] += forward + price.input_gradient.at(item(stage)) + price.weight_gradient.at(item(stage));
      if (graph_.nodes[id].has_backward) seconds[stage] += exchange;
      if (choice(stage).recompute && has_backward_[stage]) seconds[stage] += forward;
    }
    return seconds;
  }

  /// The same on the slowest device of each stage.
  std::vector<double> work() const {
    size_t max_replicas = 1;
    for (size_t stage = 0; stage < stages(); ++stage)
      max_replicas = std::max(max_replicas, choice(stage).devices.size());
    if (graph_.kind_of_device.empty()) max_replicas = 1;
    std::vector<double> slowest(stages(), 0);
    for (size_t replica = 0; replica < max_replicas; ++replica) {
      std::vector<size_t> devices;
      for (size_t stage = 0; stage < stages(); ++stage)
        devices.push_back(choice(stage).devices[std::min(replica, choice(stage).devices.size() - 1)].index());
      const std::vector<double> seconds = work_on(devices);
      for (size_t stage = 0; stage < stages(); ++stage) slowest[stage] = std::max(slowest[stage], seconds[stage]);
    }
    return slowest;
  }

  double all_reduce(size_t stage, double trainable) const {
    const double d = replicas(stage);
    if (d <= 1) return 0;
    const auto [low, high] = std::minmax_element(choice(stage).devices.begin(), choice(stage).devices.end());
    const ir::LinkLevel& link = cluster_.link(*low, *high);
    // A ring of d replicas takes 2 (d - 1) rounds, each with a message of 1 / d of the bytes; half of the rounds also
    // add it.
    const double part = trainable / d;
    // Replicas that divide the optimizer's state send each other their parts of the weights too.
    const double rounds = choice(stage).shard_optimizer_state ? 1.5 : 1;
    double add = cluster_.runtime.add_byte;
    if (add <= 0)
      for (ir::DeviceId device : choice(stage).devices)
        add = std::max(add, 3 / cluster_.devices[device].memory_bandwidth.count);
    return rounds * (d - 1) *
           (2 * (part / link.bandwidth.count + link.latency.count + cluster_.runtime.of_message(part).count) +
            part * add);
  }

  /// A stage that shares trained weights with a stage that has a backward has one too.
  void propagate_backwards() {
    std::map<ir::WeightGroupId, std::set<size_t>> holders;
    for (PlanNodeId id : graph_.node_ids())
      for (const ir::WeightGroupId group : graph_.nodes[id].weights)
        if (graph_.weight_groups[group].trainable) holders[group].insert(stage_of(id));
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [group, held] : holders) {
        if (std::ranges::none_of(held, [&](size_t stage) { return has_backward_[stage]; })) continue;
        for (const size_t stage : held) {
          changed = changed || !has_backward_[stage];
          has_backward_[stage] = true;
        }
      }
    }
  }

  void check_objective() {
    has_backward_.assign(stages(), false);
    for (PlanNodeId id : graph_.node_ids())
      if (graph_.nodes[id].has_backward) has_backward_[stage_of(id)] = true;
    // A stage that only passes a gradient on has a backward for it too.
    for (const ir::PlanValue& value : graph_.values)
      for (const Hop& hop : hops_of(value))
        if (hop.back && hop.from != stage_of(value.producer)) has_backward_[hop.from] = true;
    propagate_backwards();
    const std::vector<double> compute = work(), talk = messages();
    const std::vector<Holdings> held = holdings();
    std::vector<double> load(cluster_.devices.size(), 0);
    for (size_t stage = 0; stage < stages(); ++stage) {
      double samples = static_cast<double>(choice(stage).micro_batch.count);
      if (!is_split(stage)) samples *= replicas(stage);
      const double reduce = all_reduce(stage, held[stage].trainable);
      const double total =
          std::max(compute[stage], talk[stage]) / samples + reduce / static_cast<double>(graph_.batch.count);
      for (ir::DeviceId device : choice(stage).devices) load[device.index()] += total;
    }
    const double objective = *std::max_element(load.begin(), load.end());
    if (std::abs(objective - options_.objective) > 1e-9 * std::max(objective, options_.objective))
      report("the plan's objective is ", objective, ", not ", options_.objective);
  }

  const ir::PlanGraph& graph_;
  const ir::Cluster& cluster_;
  const ir::Assignment& plan_;
  const CheckOptions& options_;
  std::vector<bool> has_backward_;  // by stage
  /// For a chain its stages in order, and the position of each stage in it. Else empty.
  std::vector<size_t> line_, place_;
  Diagnostics problems_;
};

}  // namespace

Diagnostics check_plan(const ir::PlanGraph& graph, const ir::Cluster& cluster, const ir::Assignment& assignment,
                       const CheckOptions& options) {
  return Checker(graph, cluster, assignment, options).run();
}

}  // namespace graphpipe::partitioner
