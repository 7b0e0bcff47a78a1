#include "partitioner/stage_options.h"

#include <algorithm>
#include <limits>

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;
using ir::PlanValueId;

int64_t item_size(int64_t micro_batch, size_t replicas) {
  const int64_t d = static_cast<int64_t>(replicas);
  return (micro_batch + d - 1) / d;
}

/// Replica counts of which each gives a smaller largest share than the one before.
std::vector<int> useful_counts(int64_t micro_batch, int most) {
  std::vector<int> counts;
  int64_t last = std::numeric_limits<int64_t>::max();
  for (int d = 1; d <= std::min<int64_t>(most, micro_batch); ++d) {
    const int64_t share = item_size(micro_batch, static_cast<size_t>(d));
    if (share < last) counts.push_back(d);
    last = share;
  }
  return counts;
}

double message_seconds(const ir::LinkLevel& link, double bytes) {
  return bytes > 0 ? link.latency.count + bytes / link.bandwidth.count : 0;
}

}  // namespace

StageEvaluator::StageEvaluator(const ir::PlanGraph& graph, const ir::Cluster& cluster, Samples micro_batch, int k,
                               int max_devices, bool recompute)
    : graph_(graph),
      cluster_(cluster),
      micro_batch_(micro_batch),
      k_(k),
      recompute_(recompute),
      replicas_(useful_counts(micro_batch.count, max_devices)),
      counts_(replicas_.size()),
      touches_(graph.nodes.size()),
      gradient_reader_count_(graph.values.size(), 0),
      values_(graph.values.size()),
      group_uses_(graph.weight_groups.size(), 0) {
  const auto at_counts = [&](auto&& price) {
    std::vector<double> prices(counts_);
    for (size_t i = 0; i < counts_; ++i)
      prices[i] = price(static_cast<double>(item_size(micro_batch.count, static_cast<size_t>(replicas_[i]))));
    return prices;
  };
  for (const ir::PlanNode& node : graph.nodes) {
    node_seconds_.push_back(at_counts(
        [&](double n) { return node.forward.at(n) + node.input_gradient.at(n) + node.weight_gradient.at(n); }));
    if (recompute) node_forward_.push_back(at_counts([&](double n) { return node.forward.at(n); }));
    node_stash_.push_back(at_counts([&](double n) { return node.stash_to_input_gradient.at(n); }));
  }
  for (PlanValueId id : graph.value_ids()) {
    const ir::PlanValue& value = graph.values[id];
    value_bytes_.push_back(at_counts([&](double n) { return value.bytes.at(n); }));
    value_gradient_bytes_.push_back(at_counts([&](double n) { return value.gradient_bytes.at(n); }));
    touches_[value.producer].produced.push_back(id);
    for (PlanNodeId node : value.readers) touches_[node].read.push_back(id);
    std::vector<PlanNodeId> gradient_readers = value.gradient_readers;
    gradient_readers.erase(std::unique(gradient_readers.begin(), gradient_readers.end()), gradient_readers.end());
    gradient_reader_count_[id.index()] = static_cast<int>(gradient_readers.size());
    for (PlanNodeId node : gradient_readers) touches_[node].gradient_read.push_back(id);
    for (PlanNodeId node : value.saved_by_input_gradient) touches_[node].saved.push_back(id);
    for (PlanNodeId node : value.saved_by_weight_gradient) touches_[node].weight_saved.push_back(id);
  }
  for (auto* sums : {&seconds_, &forward_, &stash_, &border_, &messages_, &hops_, &gradient_bytes_})
    sums->resize(counts_);
}

void StageEvaluator::clear() {
  for (auto* sums : {&seconds_, &forward_, &stash_, &border_, &messages_, &hops_, &gradient_bytes_})
    std::fill(sums->begin(), sums->end(), 0.0);
  workspace_ = {};
  weight_bytes_ = trainable_bytes_ = 0;
  mixes_ = has_backward_ = false;
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
  for (size_t d = 0; d < counts_; ++d) {
    seconds_[d] += node_seconds_[id.index()][d];
    stash_[d] += node_stash_[id.index()][d];
    if (recompute_) forward_[d] += node_forward_[id.index()][d];
  }
  has_backward_ = has_backward_ || node.has_backward;
  workspace_ = ir::SampleFunction::larger(workspace_, node.workspace);
  weight_bytes_ += static_cast<double>(node.buffer_bytes.count);
  mixes_ = mixes_ || node.mixes_samples;
  for (ir::WeightGroupId group : node.weights) {
    if (group_uses_[group.index()]++ > 0) continue;
    touched_groups_.push_back(group);
    const double bytes = static_cast<double>(graph_.weight_groups[group].bytes.count);
    weight_bytes_ += bytes;
    if (graph_.weight_groups[group].trainable) trainable_bytes_ += bytes;
  }
  const auto update = [&](const std::vector<PlanValueId>& list, auto&& step) {
    for (PlanValueId value : list) {
      ValueState state = values_[value];
      step(state);
      change(value, state);
    }
  };
  const Touches& touches = touches_[id];
  update(touches.produced, [](ValueState& state) { state.producer = true; });
  update(touches.read, [](ValueState& state) { ++state.readers; });
  update(touches.gradient_read, [](ValueState& state) { ++state.gradient_readers; });
  update(touches.saved, [](ValueState& state) { ++state.savers; });
  update(touches.weight_saved, [](ValueState& state) { ++state.weight_savers; });
}

StageEvaluator::Boundary StageEvaluator::boundary(PlanValueId id, const ValueState& state) const {
  Boundary at;
  at.in = !state.producer && state.readers > 0;
  at.out = state.producer && state.readers < static_cast<int>(graph_.values[id].readers.size());
  if (at.in) at.gradient = state.gradient_readers > 0;
  if (at.out) at.gradient = state.gradient_readers < gradient_reader_count_[id.index()];
  return at;
}

void StageEvaluator::add_boundary(PlanValueId id, const Boundary& at, double sign) {
  if (!at.in && !at.out) return;
  const ir::LinkLevel& link = cluster_.levels.back();
  for (size_t d = 0; d < counts_; ++d) {
    const double down = value_bytes_[id.index()][d];
    const double up = at.gradient ? value_gradient_bytes_[id.index()][d] : 0;
    const double seconds = message_seconds(link, down) + message_seconds(link, up);
    messages_[d] += sign * seconds;
    border_[d] += sign * down;
    if (at.out) hops_[d] += sign * seconds;
    gradient_bytes_[d] += sign * up;
  }
}

void StageEvaluator::change(PlanValueId id, ValueState to) {
  ValueState& state = values_[id];
  touched_values_.push_back(id);
  const Boundary before = boundary(id, state), after = boundary(id, to);
  if (before.in != after.in || before.out != after.out || before.gradient != after.gradient) {
    add_boundary(id, before, -1);
    add_boundary(id, after, 1);
  }
  // Inputs and outputs stay as long as the item, saved or not; what is both counts once.
  const auto is_held = [](const ValueState& of, const Boundary& at) {
    return of.savers + of.weight_savers > 0 || at.in || at.out;
  };
  const double held = static_cast<double>(is_held(to, after)) - static_cast<double>(is_held(state, before));
  for (size_t d = 0; d < counts_; ++d) {
    stash_[d] += held * value_bytes_[id.index()][d];
  }
  state = to;
}

double StageEvaluator::least_time_per_sample() const {
  double least = seconds_[0];
  if (!mixes_) least = *std::min_element(seconds_.begin(), seconds_.end());
  return least / static_cast<double>(micro_batch_.count);
}

double StageEvaluator::reduce_seconds(int devices) const {
  if (devices < 2) return 0;
  const auto holds = [&](const ir::LinkLevel& level) { return level.group >= devices; };
  const auto found = std::find_if(cluster_.levels.begin(), cluster_.levels.end(), holds);
  const ir::LinkLevel& link = found == cluster_.levels.end() ? cluster_.levels.back() : *found;
  const double ring = static_cast<double>(devices - 1);
  return 2 * ring / static_cast<double>(devices) * trainable_bytes_ / link.bandwidth.count +
         2 * ring * link.latency.count;
}

StageOption StageEvaluator::option_at(size_t index, bool recompute) const {
  const double samples = static_cast<double>(micro_batch_.count);
  const size_t replicas = static_cast<size_t>(replicas_[index]);
  const double item = static_cast<double>(item_size(micro_batch_.count, replicas));
  const double seconds = seconds_[index] + (recompute ? forward_[index] : 0);
  StageOption option;
  option.devices = replicas_[index];
  option.recompute = recompute;
  // Sums over values that went in and out again may leave a trace of rounding below zero.
  const double messages = std::max(0.0, messages_[index]), hops = std::max(0.0, hops_[index]);
  option.time_per_sample =
      std::max(seconds, messages) / samples + reduce_seconds(option.devices) / static_cast<double>(graph_.batch.count);
  option.flight = {
      .micro_batch = micro_batch_.count, .k = k_, .seconds_per_sample = seconds / samples, .hop_seconds = hops};
  option.latency = seconds + hops;
  option.fixed_bytes = weight_bytes_ + trainable_bytes_ * (1 + graph_.optimizer_state_per_weight_byte) +
                       workspace_.at(item) + std::max(0.0, gradient_bytes_[index]);
  option.item_bytes = std::max(0.0, stash_[index]);
  if (recompute) {
    const double kept = std::max(0.0, std::min(border_[index], option.item_bytes));
    option.fixed_bytes += option.item_bytes - kept;
    option.item_bytes = kept;
  }
  return option;
}

void StageEvaluator::options(double limit, std::vector<StageOption>& out) const {
  const size_t first = out.size();
  for (size_t i = 0; i < counts(); ++i)
    for (bool recompute : {false, true}) {
      if (recompute && !may_recompute()) break;
      const StageOption option = option_at(i, recompute);
      if (!(option.time_per_sample <= limit)) continue;
      const bool useless =
          std::any_of(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), [&](const StageOption& o) {
            return o.time_per_sample <= option.time_per_sample && o.fixed_bytes <= option.fixed_bytes &&
                   o.item_bytes <= option.item_bytes &&
                   o.flight.seconds_per_sample <= option.flight.seconds_per_sample &&
                   o.flight.hop_seconds <= option.flight.hop_seconds;
          });
      if (!useless) out.push_back(option);
    }
}

}  // namespace graphpipe::partitioner
