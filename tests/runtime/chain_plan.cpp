#include "tests/runtime/chain_plan.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/runtime/two_stage_plan.h"

namespace graphpipe::runtime::test {
namespace {

using wire::ActionOp;
using wire::ActionRow;
using wire::SampleRange;

constexpr int64_t kChainWidth = 6;
constexpr DimRow kChainRows[] = {{1, 1}, {kChainWidth, 0}};
constexpr DimRow kChainMatrix[] = {{kChainWidth, 0}, {kChainWidth, 0}};
constexpr DimRow kChainVector[] = {{kChainWidth, 0}};
constexpr TensorRow kChainTensor{ElementType::kFloat32, kChainRows, 0, 1};
constexpr DataRow kFirst[] = {{"x", kChainTensor, 0}};
constexpr DataRow kLast[] = {{"t", kChainTensor, 1}};
constexpr DataRow kOnly[] = {{"x", kChainTensor, 0}, {"t", kChainTensor, 1}};
constexpr int32_t kKeepInput[] = {0};
constexpr int32_t kKeepInputs[] = {0, 1};

void add(at::Tensor& sum, const at::Tensor& share) {
  if (sum.defined()) sum.add_(share);
  else sum = share.clone();
}

// Slots: 0 h, 1 next h, 2 its gradient (received), 3 gradient before tanh, 4 gradient of h.
void forward_layer(const StageArguments& a) { a.slot[1] = at::tanh(at::linear(a.slot[0], a.weights[0], a.weights[1])); }
void input_layer(const StageArguments& a) {
  a.slot[3] = at::tanh_backward(a.slot[2], a.slot[1]);
  a.slot[4] = at::mm(a.slot[3], a.weights[0]);
}
void weight_layer(const StageArguments& a) {
  add(a.gradients[0], at::mm(a.slot[3].t(), a.slot[0]));
  add(a.gradients[1], a.slot[3].sum(0));
}

// Slots: 0 h, 1 t, 2 scale, 3 difference, 4 loss, 5 gradient of h, 6 gradient of y.
void forward_last(const StageArguments& a) {
  a.slot[3] = at::linear(a.slot[0], a.weights[0]).sub(a.slot[1]);
  a.slot[4] = a.slot[3].square().sum().mul(a.slot[2]);
}
void input_last(const StageArguments& a) {
  a.slot[6] = a.slot[3].mul(a.slot[2].mul(2));
  a.slot[5] = at::mm(a.slot[6], a.weights[0]);
}
void weight_last(const StageArguments& a) { add(a.gradients[0], at::mm(a.slot[6].t(), a.slot[0])); }

std::string weight_name(int stage) { return "w" + std::to_string(stage); }
std::string bias_name(int stage) { return "b" + std::to_string(stage); }

std::vector<NamedTensor> chain_weights(int stages) {
  std::vector<NamedTensor> weights;
  for (int stage = 0; stage < stages; ++stage) {
    weights.push_back({weight_name(stage), waves({kChainWidth, kChainWidth}, 2 * stage)});
    if (stage + 1 < stages) weights.push_back({bias_name(stage), waves({kChainWidth}, 2 * stage + 1)});
  }
  return weights;
}

}  // namespace

ChainPlan::ChainPlan(const ChainShape& shape) : shape_(shape) {
  const auto stages = static_cast<size_t>(shape.stages);
  params_.resize(stages);
  boundaries_.resize(stages);
  entries_.resize(stages);
  names_.reserve(2 * stages);
  int32_t devices = 0;
  for (int s = 0; s < shape.stages; ++s) {
    const auto index = static_cast<size_t>(s);
    const bool last = s + 1 == shape.stages;
    names_.push_back(weight_name(s));
    params_[index] = {
        {names_.back().c_str(), {ElementType::kFloat32, kChainMatrix, -1, 1}, ParamRole::kTrainable, 2 * s}};
    params_[index].back().is_table = shape.has_table && s == 0;
    names_.push_back(bias_name(s));
    if (!last)
      params_[index].push_back(
          {names_.back().c_str(), {ElementType::kFloat32, kChainVector, -1, 1}, ParamRole::kTrainable, 2 * s + 1});
    if (s > 0) boundaries_[index].push_back({s - 1, true, 0, last ? 5 : 4, 1, kChainTensor});
    if (!last) boundaries_[index].push_back({s, false, 1, 2, 1, kChainTensor});
    if (!last) edges_.push_back({s, s + 1});
    StageEntry& entry = entries_[index];
    entry = {.stage = s,
             .slot_size = last ? 7 : 5,
             .forward = last ? forward_last : forward_layer,
             .input_gradient = last ? input_last : input_layer,
             .weight_gradient = last ? weight_last : weight_layer,
             .params = params_[index],
             .boundaries = boundaries_[index]};
    if (last) entry.loss_slot = 4, entry.loss_scale_slot = 2;
    entry.data = last && s == 0 ? std::span<const DataRow>(kOnly) : last ? kLast : std::span<const DataRow>();
    if (s == 0 && !last) entry.data = kFirst;
    entry.recompute_inputs = last ? std::span<const int32_t>(kKeepInputs) : kKeepInput;
    for (int replica = 0; replica < replicas(s); ++replica) placement_.push_back({s, replica, devices++});
    stages_.push_back(
        {shape.micro_batch, replicas(s), ReplicaMode::kRoundRobin, static_cast<int32_t>(ring(s)), shape.recompute});
  }
  name_versions();
  for (const PlacementRow& row : placement_) actions_.push_back(list_of(row.stage, row.replica));
  loss_updates_ = updates(shape.stages - 1);
  fill_tables();
}

ChainPlan::ChainPlan(const ChainShape& shape, ChainSchedule schedule) : ChainPlan(shape) {
  stages_ = std::move(schedule.stages);
  placement_ = std::move(schedule.placement);
  actions_ = std::move(schedule.actions);
  loss_updates_ = std::move(schedule.loss_updates);
  fill_tables();
}

void ChainPlan::fill_tables() {
  const auto devices = static_cast<int32_t>(actions_.size());
  held_.assign(actions_.size(), {});
  for (const PlacementRow& row : placement_)
    held_[static_cast<size_t>(row.device)].push_back(&entries_[static_cast<size_t>(row.stage)]);
  programs_.clear();
  table_ = {.plan_digest = kFolderDigest,
            .batch = shape_.micro_batch * shape_.micro_batches / shape_.batches,
            .batches = shape_.batches,
            .device_count = devices,
            .optimizer = shape_.optimizer,
            .loss = {.normalizer = LossRow::Normalizer::kSamples, .elements_per_sample = kChainWidth},
            .loss_updates = loss_updates_,
            .stages = stages_,
            .edges = edges_,
            .placement = placement_};
  for (int32_t d = 0; d < devices; ++d)
    programs_.push_back({d, &table_, actions_[static_cast<size_t>(d)], held_[static_cast<size_t>(d)]});
}

int ChainPlan::replicas(int stage) const {
  const auto index = static_cast<size_t>(stage);
  return index < shape_.replicas.size() ? shape_.replicas[index] : 1;
}

int64_t ChainPlan::per_update(int stage) const {
  if (shape_.versions == Versions::kFlush) return shape_.micro_batches;
  return replicas(stage) > 1 && !shape_.every_item ? replicas(stage) : shape_.per_update;
}

std::vector<SampleRange> ChainPlan::updates(int stage) const {
  std::vector<SampleRange> out;
  const int64_t batch = shape_.micro_batch * shape_.micro_batches, size = per_update(stage) * shape_.micro_batch;
  for (int64_t first = 0; first < batch; first += size) out.push_back({first, std::min(first + size, batch)});
  return out;
}

int64_t ChainPlan::warm_up(int stage) const {
  int64_t after = 0;
  for (int s = stage; s < shape_.stages; ++s) after += replicas(s);
  return (after - 1) / replicas(stage);
}

int64_t ChainPlan::ring(int stage) const { return warm_up(stage) + 2; }

void ChainPlan::name_versions() {
  for (int s = 0; s < shape_.stages; ++s) {
    std::vector<int32_t>& versions = versions_.emplace_back();
    for (int64_t m = 0; m < shape_.micro_batches; ++m) {
      int64_t updates = 0;
      const int64_t n = per_update(s), r = replicas(s);
      if (shape_.every_item) updates = m - (r - 1);
      else if (shape_.versions == Versions::kStashing) updates = r > 1 ? m / r - warm_up(s) : (m - warm_up(s)) / n;
      else if (shape_.versions == Versions::kVerticalSync) updates = (m - (shape_.stages - 1)) / n;
      else if (shape_.versions == Versions::kTwoBuffers) updates = m / n - 1;
      versions.push_back(static_cast<int32_t>(std::max<int64_t>(0, updates)));
    }
  }
}

ActionRow ChainPlan::row(ActionOp op, int stage, int replica, int64_t micro_batch) const {
  const int64_t first = micro_batch * shape_.micro_batch;
  return {.op = op,
          .stage = stage,
          .replica = replica,
          .range = {first, first + shape_.micro_batch},
          .slot = static_cast<int32_t>(micro_batch / replicas(stage) % ring(stage)),
          .version = versions_[static_cast<size_t>(stage)][static_cast<size_t>(micro_batch)]};
}

void ChainPlan::add_transfer(ActionOp op, int stage, int replica, int64_t micro_batch,
                             std::vector<ActionRow>& list) const {
  const bool above = op == ActionOp::kReceiveForward || op == ActionOp::kSendBackward;  // the other end
  const int other = above ? stage - 1 : stage + 1;
  if (other < 0 || other >= shape_.stages) return;
  ActionRow action = row(op, stage, replica, micro_batch);
  action.edge = std::min(stage, other);
  action.peer_replica = static_cast<int32_t>(micro_batch % replicas(other));
  action.version = 0;
  list.push_back(action);
}

void ChainPlan::add_item(int stage, int replica, int64_t micro_batch, bool backward,
                         std::vector<ActionRow>& list) const {
  const auto compute = [&](ActionOp op) { list.push_back(row(op, stage, replica, micro_batch)); };
  add_transfer(backward ? ActionOp::kReceiveBackward : ActionOp::kReceiveForward, stage, replica, micro_batch, list);
  if (backward && shape_.recompute) compute(ActionOp::kRecompute);
  compute(!backward ? ActionOp::kForward : shape_.split_backward ? ActionOp::kInputGradient : ActionOp::kBackward);
  add_transfer(backward ? ActionOp::kSendBackward : ActionOp::kSendForward, stage, replica, micro_batch, list);
  if (backward && shape_.split_backward) compute(ActionOp::kWeightGradient);
}

void ChainPlan::add_step(int stage, int replica, int64_t update, std::vector<ActionRow>& list) const {
  const SampleRange range = updates(stage)[static_cast<size_t>(update)];
  const bool reduced = std::ranges::any_of(
      list, [&](const ActionRow& other) { return other.op == ActionOp::kReduceGradient && other.range == range; });
  if (replicas(stage) > 1 && !reduced)
    list.push_back({.op = ActionOp::kReduceGradient, .stage = stage, .replica = replica, .range = range});
  list.push_back({.op = ActionOp::kStep,
                  .stage = stage,
                  .replica = replica,
                  .range = range,
                  .version = static_cast<int32_t>(update + 1)});
}

// Puts FREE after the last reader of every version that a step has left behind.
std::vector<ActionRow> with_releases(const std::vector<ActionRow>& list) {
  std::map<int32_t, size_t> last_reader, made;
  for (size_t i = 0; i < list.size(); ++i) {
    if (wire::is_compute(list[i].op)) last_reader[list[i].version] = i;
    if (list[i].op == ActionOp::kStep) made[list[i].version] = i;
  }
  std::vector<ActionRow> out;
  for (size_t i = 0; i < list.size(); ++i) {
    out.push_back(list[i]);
    if (!wire::is_compute(list[i].op)) continue;
    const int32_t version = list[i].version;
    const auto next = made.find(version + 1);
    if (last_reader.at(version) != i || next == made.end() || next->second > i) continue;
    out.push_back({.op = ActionOp::kFreeVersion,
                   .stage = list[i].stage,
                   .replica = list[i].replica,
                   .range = list[i].range,
                   .version = version});
  }
  return out;
}

std::vector<ActionRow> ChainPlan::list_of(int stage, int replica) const {
  std::vector<int64_t> own;
  for (int64_t m = replica; m < shape_.micro_batches; m += replicas(stage)) own.push_back(m);
  std::vector<ActionRow> list;
  if (shape_.forward_only) {
    for (int64_t m : own) add_item(stage, replica, m, false, list);
    return list;
  }
  const auto count = static_cast<int64_t>(updates(stage).size());
  int64_t steps = 0, reduced = 0;
  const auto reduce_to = [&](int64_t update) {
    for (; reduced < std::min(update, count); ++reduced)
      list.push_back({.op = ActionOp::kReduceGradient,
                      .stage = stage,
                      .replica = replica,
                      .range = updates(stage)[static_cast<size_t>(reduced)]});
  };
  if (shape_.every_item) {
    for (int64_t m : own) {
      reduce_to(m);
      while (steps < row(ActionOp::kForward, stage, replica, m).version) add_step(stage, replica, steps++, list);
      add_item(stage, replica, m, false, list);
      add_item(stage, replica, m, true, list);
      reduce_to(m + 1);
    }
    reduce_to(count);
  } else {
    const auto warm = static_cast<size_t>(warm_up(stage));
    for (size_t next = 0; next < own.size() + warm; ++next) {
      if (next < own.size()) add_item(stage, replica, own[next], false, list);
      if (next < warm) continue;
      const int64_t done = own[next - warm];
      add_item(stage, replica, done, true, list);
      const bool ends_update = replicas(stage) > 1 || (done + 1) % per_update(stage) == 0;
      if (shape_.versions != Versions::kFlush && ends_update) add_step(stage, replica, steps++, list);
    }
  }
  while (steps < count) add_step(stage, replica, steps++, list);
  return with_releases(list);
}

std::string make_chain_folder(int stages, int64_t samples) { return make_folder(chain_weights(stages), samples); }

namespace {

/// Inputs and targets as write_npy makes them.
at::Tensor rows(int64_t samples, int64_t first, int64_t count, double phase) {
  at::Tensor out = at::empty({count, kChainWidth}, at::TensorOptions().dtype(at::kDouble));
  for (int64_t i = 0; i < count * kChainWidth; ++i) {
    const int64_t index = (first * kChainWidth + i) % (samples * kChainWidth);
    out.mutable_data_ptr<double>()[i] = static_cast<float>(std::sin(static_cast<double>(index) * 0.7 + phase));
  }
  return out;
}

struct PlainStage {
  std::vector<std::vector<at::Tensor>> versions;  // of this step
  std::vector<at::Tensor> sums;
};

/// Adds the gradients of one micro-batch, whose loss is divided by `divisor`.
void add_gradients(std::vector<PlainStage>& stages, const std::vector<int32_t>& versions, const at::Tensor& x,
                   const at::Tensor& t, double divisor) {
  const auto weights = [&](size_t s) -> const std::vector<at::Tensor>& {
    return stages[s].versions[static_cast<size_t>(versions[s])];
  };
  std::vector<at::Tensor> h = {x};
  for (size_t s = 0; s + 1 < stages.size(); ++s)
    h.push_back(at::tanh(at::linear(h.back(), weights(s)[0], weights(s)[1])));
  at::Tensor gradient = at::linear(h.back(), weights(stages.size() - 1)[0]).sub(t).mul(2 / divisor);
  for (size_t s = stages.size(); s-- > 0;) {
    if (s + 1 < stages.size()) {
      gradient = gradient.mul(h[s + 1].square().neg().add(1));
      stages[s].sums[1].add_(gradient.sum(0));
    }
    stages[s].sums[0].add_(at::mm(gradient.t(), h[s]));
    gradient = at::mm(gradient, weights(s)[0]);
  }
}

}  // namespace

std::map<std::string, std::vector<float>> train_plainly(const ChainShape& shape, const ChainPlan& plan, int64_t steps,
                                                        double learning_rate, double momentum) {
  std::map<std::pair<int, size_t>, at::Tensor> momenta;
  return train_plainly(shape, plan, steps, [&](int stage, size_t i, at::Tensor& weight, const at::Tensor& gradient) {
    at::Tensor& kept = momenta[{stage, i}];
    kept = kept.defined() ? kept.mul(momentum).add(gradient) : gradient.clone();
    weight.sub_(kept, learning_rate);
  });
}

std::map<std::string, std::vector<float>> train_plainly(const ChainShape& shape, const ChainPlan& plan, int64_t steps,
                                                        const PlainUpdate& update_weight) {
  const int64_t size = shape.micro_batch, batch = size * shape.micro_batches, samples = steps * batch;
  std::vector<PlainStage> stages(static_cast<size_t>(shape.stages));
  for (const NamedTensor& named : chain_weights(shape.stages)) {
    PlainStage& stage = stages[static_cast<size_t>(std::stoi(named.name.substr(1)))];
    if (stage.versions.empty()) stage.versions.emplace_back();
    stage.versions[0].push_back(named.tensor.to(at::kDouble));
    stage.sums.push_back(at::zeros_like(stage.versions[0].back()));
  }
  for (int64_t step = 0; step < steps; ++step) {
    for (PlainStage& stage : stages) stage.versions = {stage.versions.back()};
    for (int64_t m = 0; m < shape.micro_batches; ++m) {
      std::vector<int32_t> versions;
      for (const std::vector<int32_t>& of_stage : plan.versions()) versions.push_back(of_stage[static_cast<size_t>(m)]);
      // Every gradient is that of its own micro-batch's mean; an update takes the mean of these.
      add_gradients(stages, versions, rows(samples, step * batch + m * size, size, 0),
                    rows(samples, step * batch + m * size, size, 0.4), static_cast<double>(kChainWidth * size));
      for (int s = 0; s < shape.stages; ++s) {
        PlainStage& stage = stages[static_cast<size_t>(s)];
        for (const SampleRange& update : plan.updates(s)) {
          if (update.last != (m + 1) * size) continue;
          std::vector<at::Tensor>& next = stage.versions.emplace_back(stage.versions.back());
          for (size_t i = 0; i < next.size(); ++i) {
            const double mean = static_cast<double>(size) / static_cast<double>(update.size());
            next[i] = next[i].clone();
            update_weight(s, i, next[i], stage.sums[i].mul(mean));
            stage.sums[i].zero_();
          }
        }
      }
    }
  }
  std::map<std::string, std::vector<float>> out;
  for (int s = 0; s < shape.stages; ++s) {
    const std::vector<at::Tensor>& last = stages[static_cast<size_t>(s)].versions.back();
    for (size_t i = 0; i < last.size(); ++i) {
      const at::Tensor flat = last[i].to(at::kFloat).flatten().contiguous();
      const float* data = flat.const_data_ptr<float>();
      out[i == 0 ? weight_name(s) : bias_name(s)] = std::vector<float>(data, data + flat.numel());
    }
  }
  return out;
}

}  // namespace graphpipe::runtime::test
