#include "runtime/reference/interpreter.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "runtime/collectives/buckets.h"
#include "runtime/error.h"
#include "runtime/executor/check_loss.h"
#include "runtime/executor/resolve.h"
#include "runtime/executor/shorter_program.h"
#include "runtime/executor/update_weights.h"
#include "runtime/optimizers/gradient_norm.h"
#include "runtime/reference/run_together.h"
#include "runtime/tensors.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

using wire::ActionOp;
using wire::ActionRow;
using wire::SampleRange;

bool is_inside(SampleRange inner, SampleRange outer) { return wire::intersect(inner, outer) == inner; }

// Element by element, as described in buckets.h: starting at the replica whose chunk the element lies in, around the
// ring.
void add_bucket(const Bucket& bucket, const std::vector<const std::vector<at::Tensor>*>& shares,
                std::vector<at::Tensor>& sums) {
  const auto replicas = static_cast<int32_t>(shares.size());
  int64_t part_first = 0;  // within the bucket
  for (const BucketPart& part : bucket.parts) {
    for (int32_t chunk = 0; chunk < replicas; ++chunk) {
      const ElementRange range = chunk_of(bucket, chunk, replicas);
      const int64_t first = std::max(range.first, part_first);
      const int64_t count = std::min(range.first + range.count, part_first + part.count) - first;
      if (count <= 0) continue;
      const auto piece_of = [&](const at::Tensor& tensor) {
        return tensor.view(-1).narrow(0, part.first + first - part_first, count);
      };
      at::Tensor sum = piece_of((*shares[static_cast<size_t>(chunk)])[part.parameter]).clone();
      for (int32_t i = 1; i < replicas; ++i)
        sum.add_(piece_of((*shares[static_cast<size_t>((chunk + i) % replicas)])[part.parameter]));
      piece_of(sums[part.parameter]).copy_(sum);
    }
    part_first += part.count;
  }
}

bool makes_input_gradients(ActionOp op) { return op == ActionOp::kBackward || op == ActionOp::kInputGradient; }

/// Whether the action puts what has arrived over this boundary into its item.
bool reads(const ActionRow& row, const BoundaryRow& boundary) {
  if (row.op == ActionOp::kForward) return boundary.is_input;
  return makes_input_gradients(row.op) && !boundary.is_input && boundary.gradient_slot >= 0;
}

}  // namespace

Interpreter::Interpreter(std::span<const DeviceProgram> programs, Data& data, const Device& device,
                         const WeightFiles& weights, const UpdateSettings& settings, uint64_t seed)
    : programs_(programs),
      plan_(*programs.front().plan),
      data_(data),
      device_(device),
      seed_(seed),
      settings_(settings) {
  std::map<int32_t, const StageEntry*> entries;
  for (const DeviceProgram& program : programs)
    for (const StageEntry* entry : program.stages) entries[entry->stage] = entry;
  for (const auto& [stage, entry] : entries)
    for (int32_t replica = 0; replica < plan_.stages[static_cast<size_t>(stage)].replicas; ++replica) {
      const auto added =
          states_.emplace(StageReplica{stage, replica}, load_stage(*entry, replica, weights, settings, device));
      added.first->second.rate = replica_rate(plan_, settings, stage);
      added.first->second.shows_used_gradients = true;
    }
  find_updates();
  if (data.rest() != plan_.batch) programs_of(data.rest());
}

void Interpreter::take_weights(const Safetensors& file) {
  for (auto& [key, state] : states_) runtime::take_weights(state, file, device_);
}

void Interpreter::scale_loss(LossScale& scale) {
  loss_scale_ = &scale;
  for (auto& [key, state] : states_) state.loss_scale = &scale;
}

std::vector<StageState*> Interpreter::all_states() {
  std::vector<StageState*> all;
  for (auto& [key, state] : states_) all.push_back(&state);
  return all;
}

std::vector<StepOutcome> Interpreter::run_steps(int64_t first, int64_t last) {
  begin_steps(first, last);
  running_ = programs_of(last - first == 1 ? data_.samples_of(first) : (last - first) * plan_.batch);
  run_programs();
  return std::move(outcomes_);
}

void Interpreter::begin_steps(int64_t first, int64_t last) {
  first_step_ = first;
  factor_ = 1;
  checked_ = false;
  outcomes_.clear();
  for (int64_t step = first; step < last; ++step)
    outcomes_.push_back({.losses = {}, .samples = data_.samples_of(step)});
  if (loss_scale_ != nullptr) outcome().loss_scale = loss_factor_ = loss_scale_->scale();
  items_.clear();
  messages_.clear();
  meetings_.clear();
  sums_.clear();
  reduced_.clear();
  std::vector<StageState*> places;
  for (auto& [key, state] : states_) {
    begin_step(state, first, step_shares(data_, first, settings_.options.accumulate));
    places.push_back(&state);
  }
  if (guard_ != nullptr || loss_scale_ != nullptr) statistics_.keep(places);
  if (guard_ != nullptr) guard_->begin(places, statistics_);
  if (loss_scale_ != nullptr) overflow_.begin(places, statistics_);
  evaluates_ = false;
  source_ = &data_;
}

StepOutcome Interpreter::evaluate(int64_t batch, Data& data) {
  first_step_ = batch;
  outcomes_.assign(1, {});
  items_.clear();
  messages_.clear();
  evaluates_ = true;
  loss_factor_ = 1;
  source_ = &data;
  running_ = forwards_of(data.samples_of(batch)).programs;
  run_programs();
  return std::move(outcome());
}

const Interpreter::Forwards& Interpreter::forwards_of(int64_t samples) {
  Forwards& forwards = forwards_[samples];
  if (!forwards.programs.empty()) return forwards;
  for (const DeviceProgram& program : programs_)
    forwards.programs.push_back(forwards.parts.emplace_back(program, samples).program());
  return forwards;
}

void Interpreter::run_programs() {
  loss_scales_.emplace(*running_.front().plan, *source_, first_step_, std::ssize(outcomes_));
  if (!evaluates_) check_defined(*loss_scales_, guard_);
  for (size_t i = 0; i < outcomes_.size(); ++i) outcomes_[i].loss_divisor = loss_scales_->total(i);
  count_work();
  std::vector<size_t> next(running_.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t p = 0; p < running_.size(); ++p) {
      const auto& actions = running_[p].actions;
      while (next[p] < actions.size() && try_run(actions[next[p]])) {
        ++next[p];
        moved = true;
      }
    }
  }
  for (size_t p = 0; p < running_.size(); ++p)
    if (next[p] < running_[p].actions.size())
      fail(Code::kBadSchedule, describe(plan_, running_[p].actions[next[p]]) + " can never run",
           "check the schedule, then generate the folder again");
}

void Interpreter::find_updates() {
  for (const DeviceProgram& program : programs_)
    for (const ActionRow& row : program.actions)
      if (row.op == ActionOp::kStep) updates_[row.stage][row.range.last] = row.range.first;
}

// The update of the stage that contains the row's samples; a stage that never steps has one.
Interpreter::UpdateKey Interpreter::update_of(const ActionRow& row) const {
  const auto stage = updates_.find(row.stage);
  if (stage == updates_.end()) return {row.stage, 0};
  const auto update = stage->second.lower_bound(row.range.last);
  return {row.stage, update == stage->second.end() ? 0 : update->second};
}

std::span<const DeviceProgram> Interpreter::programs_of(int64_t samples) {
  if (samples == plan_.batch * plan_.batches) return programs_;
  Shorter& shorter = shorter_[samples];
  if (!shorter.programs.empty()) return shorter.programs;
  for (const DeviceProgram& program : programs_) shorter.actions.push_back(actions_of_first(program, samples));
  shorter.programs.assign(programs_.begin(), programs_.end());
  for (size_t p = 0; p < shorter.programs.size(); ++p) shorter.programs[p].actions = shorter.actions[p];
  return shorter.programs;
}

void Interpreter::count_work() {
  work_left_.clear();
  for (const DeviceProgram& program : running_)
    for (const ActionRow& row : program.actions)
      if (wire::is_compute(row.op)) ++work_left_[update_of(row)];
}

bool Interpreter::try_run(const ActionRow& row) {
  if (wire::is_compute(row.op)) return try_compute(row);
  if (wire::is_send(row.op)) send(row);
  if (row.op == ActionOp::kStep) return try_step(row);
  if (row.op == ActionOp::kFreeVersion) free_version(states_.at({row.stage, row.replica}), row.version);
  return true;  // a reader takes what has arrived from the message map; all else concerns channels, memory or tracing
}

bool Interpreter::try_compute(const ActionRow& row) {
  const StageEntry& entry = *states_.at({row.stage, row.replica}).entry;
  if (!evaluates_ && row.op != ActionOp::kWeightGradient && exchanges_sums(plan_, entry)) return try_together(row);
  if (!has_arrived(row)) return false;
  compute(row, nullptr);
  return true;
}

bool Interpreter::has_arrived(const ActionRow& row) const {
  return std::ranges::all_of(states_.at({row.stage, row.replica}).entry->boundaries, [&](const BoundaryRow& boundary) {
    return !reads(row, boundary) || has_messages(row, boundary, makes_input_gradients(row.op));
  });
}

// The last of the replicas that comes here runs the parts of all.
bool Interpreter::try_together(const ActionRow& row) {
  const int64_t first = micro_batch_of(plan_, row.stage, row.range).first;
  std::map<int32_t, ActionRow>& there = meetings_[{row.stage, row.op, first}];
  const auto replicas = static_cast<size_t>(plan_.stages[static_cast<size_t>(row.stage)].replicas);
  if (there.size() == replicas) return true;
  if (!has_arrived(row)) return false;
  there[row.replica] = row;
  if (there.size() < replicas) return false;
  std::vector<std::function<void(ReplicaExchange&)>> parts;
  for (const auto& [replica, part] : there)
    parts.emplace_back([this, &part](ReplicaExchange& others) { compute(part, &others); });
  run_together(device_, parts);
  return true;
}

void Interpreter::compute(const ActionRow& row, ReplicaExchange* replicas) {
  const StageEntry& entry = *states_.at({row.stage, row.replica}).entry;
  if (row.op == ActionOp::kForward)
    items_[{row.stage, row.replica, row.range.first}] = {row.range,
                                                         std::vector<at::Tensor>(static_cast<size_t>(entry.slot_size))};
  Item& item = item_of(row);
  for (const BoundaryRow& boundary : entry.boundaries)
    if (reads(row, boundary)) take_messages(row, boundary, makes_input_gradients(row.op), item);
  if (row.op == ActionOp::kForward) forward(row, item, replicas);
  if (row.op == ActionOp::kRecompute) call(entry.forward, row, item, true, replicas);
  if (makes_input_gradients(row.op)) call(entry.input_gradient, row, item, false, replicas);
  if (wire::makes_weight_gradients(row.op)) call(entry.weight_gradient, row, item, false, nullptr);
  --work_left_[update_of(row)];
}

Interpreter::Item& Interpreter::item_of(const ActionRow& row) {
  auto after = items_.upper_bound({row.stage, row.replica, row.range.first});
  if (after != items_.begin()) {
    auto& [key, item] = *std::prev(after);
    if (std::get<0>(key) == row.stage && std::get<1>(key) == row.replica && is_inside(row.range, item.range))
      return item;
  }
  fail(Code::kBadSchedule, describe(plan_, row) + ": no forward has made its item",
       "check the schedule, then generate the folder again");
}

void Interpreter::forward(const ActionRow& row, Item& item, ReplicaExchange* replicas) {
  const StageEntry& entry = *states_.at({row.stage, row.replica}).entry;
  for (const DataRow& input : entry.data)
    item.tensors[static_cast<size_t>(input.slot)] =
        device_.upload(source_->item(input, step_of(row), within_step(plan_, row.range)));
  if (entry.loss_scale_slot >= 0)
    item.tensors[static_cast<size_t>(entry.loss_scale_slot)] =
        device_.upload(loss_scale_tensor(loss_scales_->divisors(row.range), loss_factor_));
  call(evaluates_ && entry.evaluate != nullptr ? entry.evaluate : entry.forward, row, item, false, replicas);
  if (KeptOutputs* const outputs = outputs_now())
    outputs->keep(entry, item.tensors, row.range, first_step_ * plan_.batch + row.range.first, device_);
  if (entry.loss_slot >= 0) {
    const double loss = item.tensors[static_cast<size_t>(entry.loss_slot)].item<double>() / loss_factor_;
    if (!evaluates_) check_finite(loss, row, item);
    outcomes_[static_cast<size_t>(steps_before(plan_, row.range))].losses.push_back(
        {within_step(plan_, row.range).first, loss * loss_scales_->share(row.range)});
  }
  if (!plan_.stages[static_cast<size_t>(row.stage)].recompute) return;
  // What a recompute produces again must not be read from the first forward: this proves that the recompute is
  // complete. Boundary outputs stay: they may not have been sent yet.
  std::set<int32_t> kept(entry.recompute_inputs.begin(), entry.recompute_inputs.end());
  kept.insert(entry.loss_scale_slot);
  for (const BoundaryRow& boundary : entry.boundaries)
    if (!boundary.is_input) kept.insert(boundary.slot);
  for (int32_t slot = 0; slot < entry.slot_size; ++slot)
    if (!kept.contains(slot)) item.tensors[static_cast<size_t>(slot)].reset();
}

void Interpreter::check_finite(double loss, const ActionRow& row, const Item& item) {
  ActionRow of_step = row;
  of_step.range = within_step(plan_, row.range);
  std::optional<std::string> problem =
      loss_problem(loss, plan_, states_.at({row.stage, row.replica}), item.tensors, of_step, step_of(row), device_);
  if (!problem) return;
  overflow_.note_loss();
  if (guard_ != nullptr) guard_->note(std::move(*problem));
  else if (loss_scale_ == nullptr || !may_be_of_scale(loss)) fail_of_loss(std::move(*problem));
}

void Interpreter::call(StageFunction function, const ActionRow& row, Item& item, bool again,
                       ReplicaExchange* replicas) {
  if (function == nullptr) return;
  StageState& state = states_.at({row.stage, row.replica});
  StageArguments arguments;
  arguments.weights = (evaluates_ ? state.weights : weights_of(state, row.version)).data();
  arguments.gradients = evaluates_ ? nullptr : gradients_of(state, update_of(row).second).data();
  arguments.slot = item.tensors.data();
  arguments.samples = row.range.size();
  arguments.first_sample = within_step(plan_, row.range).first;
  arguments.seed = seed_;
  arguments.step = static_cast<uint64_t>(step_of(row));
  arguments.recompute = again;
  arguments.keeps_outputs = outputs_now() != nullptr;
  arguments.gpu = device_.gpu();
  arguments.replicas = replicas;
  function(arguments);
}

void Interpreter::send(const ActionRow& row) {
  const Item& item = item_of(row);
  const StageEntry& entry = *states_.at({row.stage, row.replica}).entry;
  const bool backward = row.op == ActionOp::kSendBackward;
  for (const BoundaryRow& boundary : entry.boundaries) {
    if (boundary.edge != row.edge || boundary.is_input != backward) continue;
    const int32_t parts = backward ? boundary.gradient_count : 1;
    const int32_t first_slot = backward ? boundary.gradient_slot : boundary.slot;
    for (int32_t part = 0; part < parts; ++part) {
      const at::Tensor& value = item.tensors[static_cast<size_t>(first_slot + part)];
      messages_[{backward, row.edge, row.peer_replica, part}].push_back(
          {row.range, device_.download(message_rows(value, boundary.tensor, item.range, row.range)).clone()});
    }
  }
}

bool Interpreter::has_messages(const ActionRow& row, const BoundaryRow& boundary, bool backward) const {
  const int32_t parts = backward ? boundary.gradient_count : 1;
  for (int32_t part = 0; part < parts; ++part) {
    const auto found = messages_.find({backward, boundary.edge, row.replica, part});
    if (found == messages_.end()) return false;
    int64_t samples = 0;
    for (const StoredMessage& message : found->second)
      if (is_inside(message.range, row.range)) samples += message.range.size();
    if (samples != row.range.size()) return false;
  }
  return true;
}

void Interpreter::take_messages(const ActionRow& row, const BoundaryRow& boundary, bool backward, Item& item) {
  const int32_t parts = backward ? boundary.gradient_count : 1;
  const int32_t first_slot = backward ? boundary.gradient_slot : boundary.slot;
  for (int32_t part = 0; part < parts; ++part) {
    at::Tensor whole = empty_tensor(boundary.tensor, row.range.size());
    std::vector<StoredMessage>& messages = messages_[{backward, boundary.edge, row.replica, part}];
    std::erase_if(messages, [&](const StoredMessage& message) {
      if (!is_inside(message.range, row.range)) return false;
      rows_of(whole, boundary.tensor, row.range, message.range).copy_(message.rows);
      return true;
    });
    item.tensors[static_cast<size_t>(first_slot + part)] = device_.upload(whole);
  }
}

bool Interpreter::compute_is_over(UpdateKey update) const {
  if (checks_step()) return std::ranges::all_of(work_left_, [](const auto& entry) { return entry.second == 0; });
  const auto is_over = [&](int32_t stage) {
    const auto found = work_left_.find({stage, update.second});
    return found == work_left_.end() || found->second == 0;
  };
  if (!is_over(update.first)) return false;
  for (const GroupRow& group : plan_.groups)
    if (std::ranges::find(group.stages, update.first) != group.stages.end() &&
        !std::ranges::all_of(group.stages, is_over))
      return false;
  return true;
}

const std::vector<at::Tensor>& Interpreter::replica_sums(UpdateKey update) {
  const auto known = sums_.find(update);
  if (known != sums_.end()) return known->second;
  const std::vector<int32_t> ring = ring_of(plan_, update.first);
  std::vector<const std::vector<at::Tensor>*> shares;  // by position in the ring
  for (const int32_t replica : ring) {
    StageState& state = states_.at({update.first, replica});
    std::vector<at::Tensor>& gradients = gradients_of(state, update.second);
    complete_gradients(plan_, state, gradients);
    shares.push_back(&gradients);
  }
  const StageState& first = states_.at({update.first, 0});
  std::vector<at::Tensor> sums(shares.front()->size());
  for (const size_t index : first.trainable) sums[index] = (*shares.front())[index].clone();
  for (const Bucket& bucket : buckets_of(*first.entry, static_cast<int32_t>(ring.size())))
    add_bucket(bucket, shares, sums);
  return sums_.emplace(update, std::move(sums)).first->second;
}

// Gives every replica of the stage the sum over replicas, then over the stages of shared groups, both in ascending
// order.
void Interpreter::reduce(UpdateKey update) {
  if (!reduced_.insert(update).second) return;
  const StageState& first = states_.at({update.first, 0});
  for (size_t index : first.trainable) {
    const GroupRow* group = shared_group(plan_, first.entry->params[index].group);
    at::Tensor total;
    if (group == nullptr) total = replica_sums(update)[index];
    for (size_t i = 0; group != nullptr && i < group->stages.size(); ++i) {
      const std::vector<at::Tensor>& sums = replica_sums({group->stages[i], update.second});
      const std::span<const ParamRow> params = states_.at({group->stages[i], 0}).entry->params;
      const auto copy = std::ranges::find(params, group->group, &ParamRow::group);
      GP_CHECK(copy != params.end());
      const at::Tensor& share = sums[static_cast<size_t>(copy - params.begin())];
      if (i == 0) total = share.clone();
      else total.add_(share);
    }
    for (int32_t replica = 0; replica < plan_.stages[static_cast<size_t>(update.first)].replicas; ++replica)
      gradients_of(states_.at({update.first, replica}), update.second)[index] = total.clone();
  }
  if (plan_.groups.empty()) sums_.erase(update);
}

bool Interpreter::needs_norm() const { return settings_.options.clip_norm > 0 && settings_.is_update(first_step_); }

void Interpreter::check_step() {
  checked_ = true;
  for (size_t stage = 0; stage < plan_.stages.size(); ++stage) replica_sums({static_cast<int32_t>(stage), 0});
  for (size_t stage = 0; stage < plan_.stages.size(); ++stage) reduce({static_cast<int32_t>(stage), 0});
  if (loss_scale_ != nullptr) overflow_.check(*loss_scale_, settings_.is_update(first_step_), nullptr, 0, outcome());
  if (guard_ != nullptr && outcome().skipped.empty()) outcome().skipped = guard_->decide(outcome().losses, nullptr, 0);
  if (needs_norm() && outcome().skipped.empty()) find_norm();
}

void Interpreter::find_norm() {
  double total = 0;
  for (size_t stage = 0; stage < plan_.stages.size(); ++stage)
    total += squared_gradient_norm(plan_, states_.at({static_cast<int32_t>(stage), 0}));
  outcome().gradient_norm = std::sqrt(total);
  factor_ = clip_factor(outcome().gradient_norm, settings_.options.clip_norm);
}

bool Interpreter::try_step(const ActionRow& row) {
  const UpdateKey update{row.stage, row.range.first};
  if (!compute_is_over(update)) return false;
  if (checks_step() && !checked_) check_step();
  reduce(update);
  if (!outcome().skipped.empty()) return true;
  // With several versions, each is a copy that lives until the program frees it; the executor updates in place if it
  // can.
  const bool keep = updates_.at(row.stage).size() > 1;
  states_.at({row.stage, row.replica}).step = step_of(row);
  step_weights(states_.at({row.stage, row.replica}), update.second,
               {.samples = update_factor(plan_, row.range), .norm = factor_}, keep);
  return true;
}

}  // namespace graphpipe::runtime
