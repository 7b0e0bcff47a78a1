#include "partitioner/graphpipe/stage_cost_table.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "support/integer_math.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;
using ir::PlanValueId;

int64_t item_size(int64_t micro_batch, size_t replicas) {
  const int64_t d = static_cast<int64_t>(replicas);
  return ceil_div(micro_batch, d);
}

constexpr size_t kManyCounts = 32;
constexpr double kCountStep = 1.25;

/// Replica counts of which each gives a smaller largest share than the one before.
std::vector<int> useful_counts(int64_t micro_batch, int max_count) {
  std::vector<int> counts;
  int64_t last = std::numeric_limits<int64_t>::max();
  for (int d = 1; d <= std::min<int64_t>(max_count, micro_batch); ++d) {
    const int64_t share = item_size(micro_batch, static_cast<size_t>(d));
    if (share < last) counts.push_back(d);
    last = share;
  }
  if (counts.size() <= kManyCounts) return counts;
  std::vector<int> steps;
  for (int d : counts)
    if (steps.empty() || d == counts.back() || d >= kCountStep * steps.back()) steps.push_back(d);
  return steps;
}

double message_seconds(const ir::LinkLevel& link, double bytes) {
  return bytes > 0 ? link.latency.count + bytes / link.bandwidth.count : 0;
}

}  // namespace

EvaluatorOptions evaluator_options(const PlanRequest& request, bool may_recompute, bool counts_updates, size_t level) {
  const bool asked = request.recompute == Recompute::kAlways;
  return {.keep = !asked,
          .recompute = asked || (may_recompute && request.recompute == Recompute::kAuto),
          .shard_optimizer_state = request.shard_optimizer_state,
          .counts_updates = counts_updates,
          .level = level};
}

StageEvaluator::StageEvaluator(const ir::PlanGraph& graph, const ir::Cluster& cluster, Samples micro_batch, int k,
                               int max_devices, const EvaluatorOptions& options)
    : graph_(graph),
      cluster_(cluster),
      micro_batch_(micro_batch),
      k_(k),
      options_(options),
      replicas_(useful_counts(micro_batch.count, max_devices)),
      counts_(replicas_.size()),
      columns_(counts_),
      feeds_batch_(graph.nodes.size(), false),
      uses_(graph.nodes.size()),
      all_uses_(graph.values.size()),
      values_(graph.values.size()),
      group_uses_(graph.weight_groups.size(), 0) {
  std::set<std::pair<double, double>> rates;
  for (const ir::DeviceId device : ids<ir::DeviceId>(cluster.devices.size()))
    if (rates.insert({cluster.devices[device].memory_bandwidth.count, cluster.devices[device].compute.count}).second)
      kinds_of_update_.push_back(device);
  if (graph.has_batch_scope()) add_batch_columns(max_devices);
  price_counts();
  price_nodes();
  price_values();
  for (auto* sums :
       {&seconds_, &forward_, &stash_, &boundary_, &messages_, &sent_, &hops_, &gradient_bytes_, &workspace_, &kept_})
    sums->resize(columns_);
}

void StageEvaluator::add_batch_columns(int max_devices) {
  batch_counts_ = counts_;
  if (micro_batch_ < graph_.batch) {
    const bool may_have_replicas = std::ranges::any_of(graph_.nodes, [](const ir::PlanNode& node) {
      return node.scope == ir::SampleScope::kBatch && node.may_have_replicas();
    });
    const std::vector<int> counts = useful_counts(graph_.batch.count, may_have_replicas ? max_devices : 1);
    batch_column_ = columns_;
    batch_counts_ = counts.size();
    columns_ += counts.size();
    replicas_.insert(replicas_.end(), counts.begin(), counts.end());
  }
  const ir::PlanAdjacency adjacency = adjacency_of(graph_);
  for (size_t i = graph_.nodes.size(); i-- > 0;) {
    const PlanNodeId id(i);
    const auto is_or_feeds = [&](PlanNodeId next) {
      return feeds_batch_[next] || graph_.nodes[next].scope == ir::SampleScope::kBatch;
    };
    feeds_batch_[id] = std::any_of(adjacency.successors[id].begin(), adjacency.successors[id].end(), is_or_feeds);
  }
}

void StageEvaluator::price_counts() {
  std::vector<ir::DeviceId> devices;
  for (const ir::DeviceId device : ids<ir::DeviceId>(cluster_.devices.size())) devices.push_back(device);
  const double add_byte = add_seconds_per_byte(cluster_, devices);
  for (size_t column = 0; column < columns_; ++column) {
    const int d = replicas_[column];
    const int64_t samples = column < counts_ ? micro_batch_.count : graph_.batch.count;
    items_.push_back(static_cast<double>(item_size(samples, static_cast<size_t>(d))));
    const auto holds = [&](const ir::LinkLevel& level) { return level.group >= d; };
    const auto found = std::find_if(cluster_.levels.begin(), cluster_.levels.end(), holds);
    const ir::LinkLevel& link = found == cluster_.levels.end() ? cluster_.levels.back() : *found;
    reductions_.push_back(ring_time(cluster_, link, d, add_byte));
  }
}

template <typename Price>
void StageEvaluator::fill(Table& to, size_t row, Price price) const {
  to.stride = columns_;
  to.numbers.resize((row + 1) * columns_);
  for (size_t i = 0; i < columns_; ++i) to.numbers[row * columns_ + i] = price(items_[i]);
}

void StageEvaluator::price_nodes() {
  for (PlanNodeId id : graph_.node_ids()) {
    const ir::PlanNode& node = graph_.nodes[id];
    fill(node_seconds_, id.index(), [&](double n) { return node.total(n); });
    if (options_.recompute) fill(node_forward_, id.index(), [&](double n) { return node.forward.at(n); });
    for (size_t i = 0; node.exchange_seconds > 0 && i < columns_; ++i) {
      const double exchange = node.exchange_seconds * ir::exchange_rounds(static_cast<size_t>(replicas_[i]));
      node_seconds_.numbers[id.index() * columns_ + i] += (node.has_backward ? 2 : 1) * exchange;
      if (options_.recompute) node_forward_.numbers[id.index() * columns_ + i] += exchange;
    }
    fill(node_stash_, id.index(), [&](double n) { return node.stash_to_input_gradient.at(n); });
    fill(node_workspace_, id.index(), [&](double n) { return node.workspace.at(n); });
    fill(node_kept_, id.index(), [&](double n) { return node.kept_gradients.at(n); });
  }
}

void StageEvaluator::price_values() {
  const ir::LinkLevel& link = boundary_link();
  for (PlanValueId id : graph_.value_ids()) {
    const ir::PlanValue& value = graph_.values[id];
    fill(value_bytes_, id.index(), [&](double n) { return value.bytes.at(n); });
    fill(value_gradient_bytes_, id.index(), [&](double n) { return value.gradient_bytes.at(n); });
    fill(value_seconds_, id.index(), [&](double n) { return message_seconds(link, value.bytes.at(n)); });
    fill(value_gradient_seconds_, id.index(),
         [&](double n) { return message_seconds(link, value.gradient_bytes.at(n)); });
    use_of(value.producer, id).producer = true;
    for (PlanNodeId node : value.readers) ++use_of(node, id).readers;
    for (PlanNodeId node : value.gradient_readers) use_of(node, id).gradient_readers = 1;
    for (PlanNodeId node : value.saved_by_input_gradient) ++use_of(node, id).savers;
    for (PlanNodeId node : value.saved_by_weight_gradient) ++use_of(node, id).savers;
  }
  for (const auto& of_node : uses_)
    for (const auto& [value, uses] : of_node) all_uses_[value].add(uses);
}

// Uses are set value by value.
StageEvaluator::Uses& StageEvaluator::use_of(PlanNodeId node, PlanValueId value) {
  auto& of_node = uses_[node];
  if (of_node.empty() || of_node.back().first != value) of_node.emplace_back(value, Uses{});
  return of_node.back().second;
}

void StageEvaluator::clear() {
  for (auto* sums :
       {&seconds_, &forward_, &stash_, &boundary_, &messages_, &sent_, &hops_, &gradient_bytes_, &workspace_, &kept_})
    std::fill(sums->begin(), sums->end(), 0.0);
  weight_bytes_ = trainable_bytes_ = 0;
  update_alone_ = update_of_replica_ = {};
  scope_ = ir::SampleScope::kEach;
  may_have_replicas_ = true;
  fewest_samples_ = 1;
  has_backward_ = above_batch_ = false;
  for (PlanValueId value : touched_values_) values_[value] = {};
  touched_values_.clear();
  for (ir::WeightGroupId group : touched_groups_) group_uses_[group.index()] = 0;
  touched_groups_.clear();
}

void StageEvaluator::add(std::span<const PlanNodeId> nodes) {
  for (PlanNodeId node : nodes) add_node(node);
}

void StageEvaluator::add_node(PlanNodeId id) {
  const ir::PlanNode& node = graph_.nodes[id];
  const size_t row = id.index();
  const double *seconds = node_seconds_.row(row), *stash = node_stash_.row(row), *extra = node_workspace_.row(row),
               *kept = node_kept_.row(row);
  for (size_t i = 0; i < columns_; ++i) {
    seconds_[i] += seconds[i];
    stash_[i] += stash[i];
    workspace_[i] = std::max(workspace_[i], extra[i]);
    kept_[i] += kept[i];
  }
  if (options_.recompute)
    for (size_t i = 0; i < columns_; ++i) forward_[i] += node_forward_.row(row)[i];
  has_backward_ = has_backward_ || node.has_backward;
  weight_bytes_ += static_cast<double>(node.buffer_bytes.count);
  scope_ = std::max(scope_, node.scope);
  may_have_replicas_ = may_have_replicas_ && node.may_have_replicas();
  fewest_samples_ = std::max(fewest_samples_, node.fewest_samples);
  above_batch_ = above_batch_ || feeds_batch_[id];
  for (ir::WeightGroupId group : node.weights) {
    if (group_uses_[group.index()]++ > 0) continue;
    touched_groups_.push_back(group);
    const double bytes = static_cast<double>(graph_.weight_groups[group].bytes.count);
    weight_bytes_ += bytes;
    if (graph_.weight_groups[group].trainable) add_trained(graph_.weight_groups[group]);
  }
  for (const auto& [value, uses] : uses_[id]) add_uses(value, uses);
}

void StageEvaluator::add_trained(const ir::WeightGroup& weights) {
  trainable_bytes_ += static_cast<double>(weights.bytes.count);
  if (!options_.counts_updates) return;
  for (const size_t copies : {1, 2}) {
    cost::UpdateWork& work = copies == 1 ? update_alone_ : update_of_replica_;
    work.add(weights, ir::updated_bytes(weights, copies, graph_.batch));
  }
}

void StageEvaluator::Uses::add(const Uses& other) {
  producer = producer || other.producer;
  readers += other.readers;
  gradient_readers += other.gradient_readers;
  savers += other.savers;
}

StageEvaluator::Boundary StageEvaluator::boundary(PlanValueId id, const Uses& uses) const {
  const Uses& all = all_uses_[id];
  Boundary at;
  at.in = !uses.producer && uses.readers > 0;
  at.out = uses.producer && uses.readers < all.readers;
  if (at.in) at.gradient = uses.gradient_readers > 0;
  if (at.out) at.gradient = uses.gradient_readers < all.gradient_readers;
  return at;
}

void StageEvaluator::add_boundary(PlanValueId id, const Boundary& at, double sign) {
  if (!at.in && !at.out) return;
  const size_t row = id.index();
  const double *bytes = value_bytes_.row(row), *seconds = value_seconds_.row(row);
  const double *up = value_gradient_bytes_.row(row), *up_seconds = value_gradient_seconds_.row(row);
  const double back = at.gradient ? sign : 0, out = at.out ? 1 : 0;
  const double per_byte = 1 / boundary_link().bandwidth.count;
  for (size_t i = 0; i < columns_; ++i) {
    messages_[i] += (sign * bytes[i] + back * up[i]) * per_byte;
    sent_[i] += out * sign * bytes[i];
    hops_[i] += out * (sign * seconds[i] + back * up_seconds[i]);
    boundary_[i] += sign * bytes[i];
    gradient_bytes_[i] += back * up[i];
  }
}

void StageEvaluator::add_uses(PlanValueId id, const Uses& uses) {
  ValueState& state = values_[id];
  touched_values_.push_back(id);
  state.uses.add(uses);
  const Boundary before = std::exchange(state.boundary, boundary(id, state.uses));
  if (state.boundary != before) {
    add_boundary(id, before, -1);
    add_boundary(id, state.boundary, 1);
  }
  // Inputs and outputs stay as long as the item, saved or not; what is both counts once.
  const bool was_held = std::exchange(state.held, state.uses.savers > 0 || state.boundary.in || state.boundary.out);
  if (was_held == state.held) return;
  const double sign = state.held ? 1 : -1;
  const double* bytes = value_bytes_.row(id.index());
  for (size_t i = 0; i < columns_; ++i) stash_[i] += sign * bytes[i];
}

double StageEvaluator::min_time_per_sample() const {
  const bool may_be_whole = columns_ > counts_ || scope_ == ir::SampleScope::kBatch;
  double shortest = kInfinity;
  for (size_t i = 0; may_be_whole && i < (may_have_replicas_ ? batch_counts_ : 1); ++i)
    shortest = std::min(shortest, per_sample(batch_column_ + i, graph_.batch));
  if (scope_ == ir::SampleScope::kBatch) return shortest;
  for (size_t i = 0; i < (may_have_replicas_ ? counts_ : 1); ++i)
    shortest = std::min(shortest, per_sample(i, micro_batch_));
  return shortest;
}

double StageEvaluator::min_work_per_sample(PlanNodeId node) const {
  double smallest = kInfinity;
  for (size_t i = 0; i < columns_; ++i) {
    const double samples = static_cast<double>((i < counts_ ? micro_batch_ : graph_.batch).count);
    smallest = std::min(smallest, replicas_[i] * node_seconds_.row(node.index())[i] / samples);
  }
  return smallest;
}

size_t StageEvaluator::counts() const {
  const int64_t smallest = ir::smallest_micro_batch(graph_.batch, micro_batch());
  if (fewest_samples_ > smallest) return 0;
  if (!may_have_replicas_) return 1;
  if (scope_ == ir::SampleScope::kEach) return counts_;
  // Each of the replicas that work on samples together has one.
  const auto first = replicas_.begin() + static_cast<std::ptrdiff_t>(column(0));
  const size_t count = scope_ == ir::SampleScope::kBatch ? batch_counts_ : counts_;
  return static_cast<size_t>(std::upper_bound(first, first + static_cast<std::ptrdiff_t>(count), smallest) - first);
}

double StageEvaluator::compute_per_sample(size_t index) const { return per_sample(column(index), micro_batch()); }

/// On the slowest device. That other stages may hold copies of the weights is not known here.
double StageEvaluator::update_seconds(int replicas) const {
  if (!has_backward_ || !options_.counts_updates) return 0;
  cost::UpdateWork work = replicas > 1 ? update_of_replica_ : update_alone_;
  if (options_.shard_optimizer_state)
    for (double* part : {&work.bytes, &work.traffic, &work.flops}) *part /= replicas;
  double slowest = 0;
  for (const ir::DeviceId device : kinds_of_update_)
    slowest = std::max(slowest, cost::update_time(work, cluster_, device).count);
  return slowest;
}

std::span<const bool> StageEvaluator::forms() const {
  static constexpr std::array<bool, 2> kForms = {false, true};
  const std::span<const bool> forms(kForms);
  if (!options_.recompute || !has_backward_) return forms.first(1);
  return options_.keep ? forms : forms.last(1);
}

StageOption StageEvaluator::option_at(size_t replica_index, bool recompute) const {
  const size_t index = column(replica_index);
  const double samples = static_cast<double>(micro_batch().count);
  const double seconds = seconds_[index] + (recompute ? forward_[index] : 0);
  StageOption option;
  option.devices = replicas_[index];
  option.recompute = recompute;
  // Sums over values that went in and out again may leave a trace of rounding below zero.
  const double messages = std::max(0.0, messages_[index]), hops = std::max(0.0, hops_[index]);
  const double reduce = (reductions_[index].constant + reductions_[index].per_byte * trainable_bytes_) *
                        (options_.shard_optimizer_state ? 1 + cost::kHandOut : 1);
  option.time_per_sample = std::max(seconds, messages) / samples +
                           (reduce + update_seconds(option.devices)) / static_cast<double>(graph_.batch.count);
  option.time_across = option.time_per_sample;
  if (has_level_around()) {
    const double sent = std::max(0.0, sent_[index]) * option.devices;
    option.time_across =
        std::max(option.time_across, sent / cluster_.levels[options_.level + 1].bandwidth.count / samples);
  }
  option.in_flight = {.micro_batch = micro_batch().count,
                      .k = scope_ == ir::SampleScope::kBatch ? 1 : k_,
                      .seconds_per_sample = seconds / samples,
                      .hop_seconds = hops};
  if (above_batch_) option.fewest_in_flight = graph_.batch.count;
  option.latency = seconds + hops;
  const double state = graph_.optimizer_state_per_weight_byte / (options_.shard_optimizer_state ? option.devices : 1);
  option.fixed_bytes = weight_bytes_ + trainable_bytes_ * (1 + state) + workspace_[index] + kept_[index] +
                       std::max(0.0, gradient_bytes_[index]);
  option.item_bytes = std::max(0.0, stash_[index]);
  if (recompute) {
    const double kept = std::max(0.0, std::min(boundary_[index], option.item_bytes));
    option.fixed_bytes += option.item_bytes - kept;
    option.item_bytes = kept;
  }
  // One version is among the weights.
  if (graph_.versions == ir::WeightVersions::kTwo) option.fixed_bytes += trainable_bytes_;
  // How many the first stage will hold is not known yet: at least as many as this one has items.
  if (graph_.versions == ir::WeightVersions::kPerItem || graph_.versions == ir::WeightVersions::kPerItemOfFirst) {
    option.item_bytes += trainable_bytes_;
    option.fixed_bytes -= trainable_bytes_;
  }
  return option;
}

bool StageEvaluator::options(double limit, std::vector<StageOption>& out) const {
  const size_t first = out.size();
  bool all = true;
  for (size_t i = 0; i < counts(); ++i) {
    if (compute_per_sample(i) > limit) {
      all = false;
      continue;
    }
    for (const bool recompute : forms()) {
      const StageOption option = option_at(i, recompute);
      if (!(option.time_per_sample <= limit)) {
        all = false;
        continue;
      }
      const bool useless =
          std::any_of(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), [&](const StageOption& o) {
            return o.time_per_sample <= option.time_per_sample && o.fixed_bytes <= option.fixed_bytes &&
                   o.item_bytes <= option.item_bytes &&
                   o.in_flight.seconds_per_sample <= option.in_flight.seconds_per_sample &&
                   o.in_flight.hop_seconds <= option.in_flight.hop_seconds;
          });
      if (!useless) out.push_back(option);
    }
  }
  return all;
}

}  // namespace graphpipe::partitioner
