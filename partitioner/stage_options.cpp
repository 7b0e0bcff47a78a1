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

double message_seconds(const ir::LinkLevel& link, double bytes) {
  return bytes > 0 ? link.latency.count + bytes / link.bandwidth.count : 0;
}

}  // namespace

StageEvaluator::StageEvaluator(const ir::PlanGraph& graph, const ir::Cluster& cluster, Samples micro_batch, int k,
                               int max_devices)
    : graph_(graph),
      cluster_(cluster),
      micro_batch_(micro_batch),
      k_(k),
      counts_(static_cast<size_t>(std::min<int64_t>(max_devices, micro_batch.count))),
      touches_(graph.nodes.size()),
      gradient_reader_count_(graph.values.size(), 0),
      values_(graph.values.size()),
      group_uses_(graph.weight_groups.size(), 0) {
  const auto at_counts = [&](auto&& price) {
    std::vector<double> prices(counts_);
    for (size_t d = 1; d <= counts_; ++d) prices[d - 1] = price(static_cast<double>(item_size(micro_batch.count, d)));
    return prices;
  };
  for (const ir::PlanNode& node : graph.nodes) {
    node_seconds_.push_back(at_counts(
        [&](double n) { return node.forward.at(n) + node.input_gradient.at(n) + node.weight_gradient.at(n); }));
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
  for (auto* sums : {&seconds_, &stash_, &messages_, &hops_, &gradient_bytes_}) sums->resize(counts_);
}

void StageEvaluator::clear() {
  for (auto* sums : {&seconds_, &stash_, &messages_, &hops_, &gradient_bytes_})
    std::fill(sums->begin(), sums->end(), 0.0);
  workspace_ = {};
  weight_bytes_ = trainable_bytes_ = 0;
  mixes_ = false;
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
  }
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

void StageEvaluator::options(double limit, std::vector<StageOption>& out) const {
  const double samples = static_cast<double>(micro_batch_.count);
  const double batch = static_cast<double>(graph_.batch.count);
  const double state = graph_.optimizer_state_per_weight_byte;
  const size_t first = out.size();
  for (size_t d = 1; d <= (mixes_ ? 1 : counts_); ++d) {
    const double item = static_cast<double>(item_size(micro_batch_.count, d));
    StageOption option;
    option.devices = static_cast<int>(d);
    // Sums over values that went in and out again may leave a trace of rounding below zero.
    const double messages = std::max(0.0, messages_[d - 1]);
    double reduce = 0;
    if (d > 1) {
      const auto holds = [&](const ir::LinkLevel& level) { return level.group >= static_cast<int>(d); };
      const auto found = std::find_if(cluster_.levels.begin(), cluster_.levels.end(), holds);
      const ir::LinkLevel& link = found == cluster_.levels.end() ? cluster_.levels.back() : *found;
      const double ring = static_cast<double>(d - 1);
      reduce =
          2 * ring / static_cast<double>(d) * trainable_bytes_ / link.bandwidth.count + 2 * ring * link.latency.count;
    }
    option.time_per_sample = std::max(seconds_[d - 1], messages) / samples + reduce / batch;
    if (!(option.time_per_sample <= limit)) continue;
    option.flight = {.micro_batch = micro_batch_.count,
                     .k = k_,
                     .seconds_per_sample = seconds_[d - 1] / samples,
                     .hop_seconds = std::max(0.0, hops_[d - 1])};
    option.fixed_bytes =
        weight_bytes_ + trainable_bytes_ * (1 + state) + workspace_.at(item) + std::max(0.0, gradient_bytes_[d - 1]);
    option.item_bytes = std::max(0.0, stash_[d - 1]);
    const bool useless =
        std::any_of(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), [&](const StageOption& o) {
          return o.time_per_sample <= option.time_per_sample && o.fixed_bytes <= option.fixed_bytes &&
                 o.item_bytes <= option.item_bytes && o.flight.seconds_per_sample <= option.flight.seconds_per_sample &&
                 o.flight.hop_seconds <= option.flight.hop_seconds;
        });
    if (!useless) out.push_back(option);
  }
}

}  // namespace graphpipe::partitioner
