#include "runtime/executor/executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/error.h"
#include "runtime/executor/check_loss.h"
#include "runtime/executor/check_update_order.h"
#include "runtime/executor/update_weights.h"
#include "runtime/optimizers/gradient_norm.h"
#include "runtime/pace/pacer.h"
#include "runtime/server/served_updates.h"
#include "runtime/tensors.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

using wire::ActionOp;

bool scales_loss(const ResolvedProgram& program) {
  return std::ranges::any_of(program.instances, [](const Instance& i) { return i.entry->loss_scale_slot >= 0; });
}

std::vector<StageState*> places_of(std::vector<StageState>& states) {
  std::vector<StageState*> places;
  for (StageState& state : states) places.push_back(&state);
  return places;
}

/// One step of the device; the destructor ends it on every path.
class DeviceStep {
 public:
  DeviceStep(const Device& device, StepKind kind) : device_(device) { device_.begin_step(kind); }
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;
  ~DeviceStep() { device_.end_step(); }

 private:
  const Device& device_;
};

}  // namespace

Executor::Executor(const PlanTable& plan, const ResolvedProgram& program, Channels& channels, Data& data,
                   const Device& device, std::vector<StageState>& states, uint64_t seed, const UpdateSettings& settings,
                   Purpose purpose)
    : plan_(plan),
      program_(program),
      channels_(channels),
      data_(data),
      device_(device),
      states_(states),
      seed_(seed),
      settings_(settings),
      purpose_(purpose),
      gather_(channels, plan.device_count, [this] { meanwhile(); }),
      messages_(plan, program, channels, device, [this] { meanwhile(); }) {
  check_update_order(plan, program, settings, {});
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const StageEntry& entry = *program.instances[i].entry;
    const auto slots = static_cast<size_t>(plan.stages[static_cast<size_t>(entry.stage)].slots);
    slots_.emplace_back(slots, Slot(static_cast<size_t>(entry.slot_size)));
    if (trains() && !states[i].owned.empty()) exchanges_.try_emplace(i, plan, channels, device, states[i]);
    if (trains() && exchanges_sums(plan, entry))
      replicas_.try_emplace(i, plan, channels, program.instances[i], [this] { meanwhile(); });
  }
  if (plan.server >= 0) return;  // the server has the gradients of all workers
  std::vector<const Reduction*> last(program.instances.size(), nullptr);
  for (const ResolvedAction& action : program.actions) {
    if (action.row.op != ActionOp::kStep) continue;
    const Reduction*& earlier = last[action.instance];
    const auto [place, added] = reductions_.try_emplace({action.instance, action.update}, plan, channels, device,
                                                        states[action.instance], action.row.range, earlier);
    earlier = &place->second;
  }
}

std::vector<StepOutcome> Executor::run_steps(int64_t first, int64_t last) {
  const DeviceStep device_step(device_, {this, settings_.is_update(first), last - first});
  begin_steps(first, last);
  if (recorded_) recorded_->begin_step();
  for (const ResolvedAction& action : program_.actions) run_action(action);
  read_losses();
  if (served_ != nullptr)
    for (StageState& state : states_) served_->drain(state);
  // The check is a sum over all ranks: a rank without weights to update takes part too.
  if (checks_step() && !checked_) check_step();
  for (const auto& [instance, exchange] : exchanges_) wait_for_weights(instance);
  if (trains())
    for (StageState& state : states_) end_step(state);
  for (size_t i = 0; loss_scales_ && i < outcomes_.size(); ++i) outcomes_[i].loss_divisor = loss_scales_->total(i);
  return std::move(outcomes_);
}

void Executor::begin_steps(int64_t first, int64_t last) {
  first_step_ = first;
  factor_ = 1;
  checked_ = false;
  outcomes_.clear();
  unread_losses_.clear();
  for (int64_t step = first; step < last; ++step)
    outcomes_.push_back({.losses = {}, .samples = data_.samples_of(step)});
  if (loss_scale_ != nullptr) outcome().loss_scale = loss_factor_ = loss_scale_->scale();
  for (auto& [place, reduction] : reductions_) reduction.reset();
  if (trains())
    for (StageState& state : states_) begin_step(state, first, step_shares(data_, first, settings_.options.accumulate));
  if (guard_ != nullptr || loss_scale_ != nullptr) statistics_.keep(places_of(states_));
  if (guard_ != nullptr) guard_->begin(places_of(states_), statistics_);
  if (loss_scale_ != nullptr) overflow_.begin(places_of(states_), statistics_);
  if (served_ != nullptr) served_->begin(program_, first);
  if (scales_loss(program_)) loss_scales_.emplace(plan_, data_, first, last - first);
  if (loss_scales_ && trains()) check_defined(*loss_scales_, guard_);
}

void Executor::run_action(const ResolvedAction& action) {
  channels_.publish(action.row, first_step_);
  if (tracer_ != nullptr) tracer_->begin(action.row, first_step_, device_.held_bytes());
  if (meter_ != nullptr) meter_->begin(action.instance);
  // A message departs once its sender has paid the cost of sending.
  if (pacer_ != nullptr && wire::is_send(action.row.op)) pause(action);
  run(action);
  if (pacer_ != nullptr && !wire::is_send(action.row.op)) pause(action);
  if (meter_ != nullptr) meter_->end();
  if (action.ends_item) {
    read_losses();
    for (at::Tensor& tensor : slot_of(action)) tensor.reset();
  }
  note_end(action);
  channels_.progress();
  meanwhile();
}

void Executor::run(const ResolvedAction& action) {
  // Everything but compute that follows a loss depends on its being finite: gradients that are sent, updates, versions.
  if (!wire::is_compute(action.row.op)) read_losses();
  switch (action.row.op) {
    case ActionOp::kForward:
      return forward(action, false);
    case ActionOp::kRecompute:
      return forward(action, true);
    case ActionOp::kBackward:
    case ActionOp::kInputGradient:
    case ActionOp::kWeightGradient:
      return backward(action);
    case ActionOp::kSendForward:
    case ActionOp::kSendBackward:
      return send(action);
    case ActionOp::kReceiveForward:
    case ActionOp::kReceiveBackward:
      note_done();
      return messages_.receive(action, first_step_);
    case ActionOp::kSlice:
      return messages_.slice(action, slot_of(action));
    case ActionOp::kConcatenate:
      return concatenate(action);
    case ActionOp::kOffload:
      return offload(action);
    case ActionOp::kReload:
      return reload(action);
    case ActionOp::kReduceGradient:
      return reduce(action);
    case ActionOp::kNorm:
      // The norm needs every reduction; the first step waits for them and computes it.
      return;
    case ActionOp::kStep:
      return step(action);
    case ActionOp::kPublish:
      return;  // forwards name the version that they read
    case ActionOp::kAllocate:
    case ActionOp::kRelease:
      return;  // slots exist from the start, and are cleared after the item's last action
    case ActionOp::kFlush:
    case ActionOp::kTraceMark:
      return;  // the order of the list ends all items before it; the mark appears in the trace
    case ActionOp::kFreeVersion:
      return free_version(states_[action.instance], action.row.version);
  }
}

void Executor::call(StageFunction function, const ResolvedAction& action, bool again) {
  wait_for_weights(action.instance);
  StageState& state = states_[action.instance];
  if (pacer_ != nullptr) return pacer_->compute(action, state, slot_of(action));
  if (function == nullptr) return;
  const StageArguments arguments{.weights = (trains() ? weights_of(state, action.row.version) : state.weights).data(),
                                 .gradients = trains() ? gradients_of(state, action.update).data() : nullptr,
                                 .slot = slot_of(action).data(),
                                 .samples = action.row.range.size(),
                                 .first_sample = within_step(plan_, action.row.range).first,
                                 .seed = seed_,
                                 .step = static_cast<uint64_t>(step_of(action)),
                                 .recompute = again,
                                 .keeps_outputs = outputs_ != nullptr,
                                 .gpu = device_.gpu(),
                                 .listener = action.ends_gradients ? listener_of(action) : nullptr,
                                 // Weight gradients are each replica's own: the serial interpreter makes them so too.
                                 .replicas = function == state.entry->weight_gradient ? nullptr : replicas_of(action)};
  // A recording of a GPU's work cannot wait for other ranks.
  recorded_&& arguments.replicas == nullptr ? recorded_->call(function, arguments, *state.entry) : function(arguments);
}

ReplicaExchange* Executor::replicas_of(const ResolvedAction& action) {
  const auto found = replicas_.find(action.instance);
  if (found == replicas_.end()) return nullptr;
  found->second.begin(action.row, step_of(action));
  return &found->second;
}

void Executor::record_calls() {
  const auto moves_weights = [](const ResolvedAction& action) { return action.keeps_version; };
  if (std::ranges::none_of(program_.actions, moves_weights)) recorded_.emplace(device_);
}

void Executor::forward(const ResolvedAction& action, bool again) {
  const StageEntry& entry = entry_of(action);
  if (!again) {
    messages_.wait_for_sends(action.instance, action.row.slot);
    messages_.place_arrivals(action, slot_of(action));
    if (served_ != nullptr) served_->before_forward(states_[action.instance]);
    fill_inputs(action);
    note_ready();
  }
  call(entry.forward, action, again);
  if (again) return;
  if (outputs_ != nullptr)
    outputs_->keep(entry, slot_of(action), action.row.range, first_step_ * plan_.batch + action.row.range.first,
                   device_);
  if (entry.loss_slot >= 0) {
    const at::Tensor& loss = slot_of(action)[static_cast<size_t>(entry.loss_slot)];
    unread_losses_.push_back({&action, device_.begin_download(loss)});
    // A GPU continues with the backward, which is queued after the loss, before the loss is read.
    if (device_.is_host()) read_losses();
  }
  if (plan_.stages[static_cast<size_t>(entry.stage)].recompute) drop_for_recompute(action);
}

void Executor::read_losses() {
  for (const Loss& loss : unread_losses_) {
    const ResolvedAction& action = *loss.action;
    const double value = loss.value->tensor().item<double>() / loss_factor_;
    if (trains()) check_finite(value, action);
    outcomes_[static_cast<size_t>(steps_before(plan_, action.row.range))].losses.push_back(
        {within_step(plan_, action.row.range).first, value * loss_scales_->share(action.row.range)});
  }
  unread_losses_.clear();
}

void Executor::check_finite(double loss, const ResolvedAction& action) {
  wire::ActionRow row = action.row;
  row.range = within_step(plan_, row.range);
  std::optional<std::string> problem =
      loss_problem(loss, plan_, states_[action.instance], slot_of(action), row, step_of(action), device_);
  if (!problem) return;
  overflow_.note_loss();
  if (guard_ != nullptr) guard_->note(std::move(*problem));
  else if (loss_scale_ == nullptr || !may_be_of_scale(loss)) fail_of_loss(std::move(*problem));
}

void Executor::scale_loss(LossScale& scale) {
  loss_scale_ = &scale;
  check_update_order(plan_, program_, settings_, checks());
}

std::optional<std::string> Executor::find_not_finite() const {
  for (size_t i = 0; i < slots_.size(); ++i)
    for (const Slot& slot : slots_[i])
      if (const auto found = not_finite_value(*states_[i].entry, slot, device_))
        return text("stage ", states_[i].entry->stage, ", replica ", states_[i].replica, ": ", *found);
  return std::nullopt;
}

void Executor::skip_anomalies(StepGuard& guard) {
  guard_ = &guard;
  check_update_order(plan_, program_, settings_, checks());
}

void Executor::fill_inputs(const ResolvedAction& action) {
  const StageEntry& entry = entry_of(action);
  Slot& slot = slot_of(action);
  for (const DataRow& row : entry.data)
    slot[static_cast<size_t>(row.slot)] =
        device_.upload(data_.item(row, step_of(action), within_step(plan_, action.row.range)));
  if (entry.loss_scale_slot >= 0)
    slot[static_cast<size_t>(entry.loss_scale_slot)] =
        device_.upload(loss_scale_tensor(loss_scales_->divisors(action.row.range), loss_factor_));
}

// Keeps what a recompute starts from, and what has not been sent yet.
void Executor::drop_for_recompute(const ResolvedAction& action) {
  const StageEntry& entry = entry_of(action);
  Slot& slot = slot_of(action);
  std::vector<bool> keep(slot.size(), false);
  for (int32_t index : entry.recompute_inputs) keep[static_cast<size_t>(index)] = true;
  for (const BoundaryRow& boundary : entry.boundaries)
    if (!boundary.is_input) keep[static_cast<size_t>(boundary.slot)] = true;
  if (entry.loss_scale_slot >= 0) keep[static_cast<size_t>(entry.loss_scale_slot)] = true;
  for (size_t i = 0; i < slot.size(); ++i)
    if (!keep[i]) slot[i].reset();
}

void Executor::backward(const ResolvedAction& action) {
  const StageEntry& entry = entry_of(action);
  if (action.row.op != ActionOp::kWeightGradient) {
    messages_.place_arrivals(action, slot_of(action));
    note_ready();
    call(entry.input_gradient, action, false);
  }
  if (action.row.op != ActionOp::kInputGradient) call(entry.weight_gradient, action, false);
}

/// Null where the last backward runs as a recording, which tells nothing, or where there is nothing to sum.
GradientListener* Executor::listener_of(const ResolvedAction& action) {
  if ((recorded_ && !device_.is_host()) || plan_.server >= 0 || overlap_ == wire::Overlap::kNever) return nullptr;
  Reduction& reduction = reduction_of(action);
  // Both functions of a backward tell the same listener.
  if (early_sums_.sums(reduction)) return &early_sums_;
  if (!reduction.can_begin_early() || (overlap_ == wire::Overlap::kAuto && !reduction.moves_alone())) return nullptr;
  early_sums_.begin(reduction);
  return &early_sums_;
}

void Executor::EarlySums::begin(Reduction& reduction) {
  reduction.begin_early(executor_.first_step_);
  reduction_ = &reduction;
}

void Executor::EarlySums::note_complete(std::span<const int32_t> params) {
  executor_.read_losses();  // gradients of a loss that is not finite go nowhere
  reduction_->note_complete(params);
  executor_.channels_.progress();
  executor_.meanwhile();
}

void Executor::send(const ResolvedAction& action) {
  messages_.wait(action.transfer);  // the send of the previous step
  if (meter_ != nullptr) meter_->ready();
  note_done();
  messages_.send(action, slot_of(action), first_step_);
}

void Executor::concatenate(const ResolvedAction& action) {
  if (program_.arrivals[action.arrivals.front()].boundary->is_input)
    messages_.wait_for_sends(action.instance, action.row.slot);
  messages_.place_arrivals(action, slot_of(action));
  note_ready();
}

// On devices that are their own host there is nothing to move.
void Executor::offload(const ResolvedAction& action) {
  if (device_.is_host()) return;
  Slot& slot = slot_of(action);
  for (size_t i = 0; i < slot.size(); ++i) {
    if (!slot[i].defined() || slot[i].is_cpu()) continue;
    slot[i] = device_.download(slot[i]);
    offloaded_[{action.instance, action.row.slot}].push_back(i);
  }
}

void Executor::reload(const ResolvedAction& action) {
  Slot& slot = slot_of(action);
  for (size_t index : offloaded_[{action.instance, action.row.slot}]) slot[index] = device_.upload(slot[index]);
  offloaded_.erase({action.instance, action.row.slot});
}

void Executor::meanwhile() {
  for (auto& [place, reduction] : reductions_) reduction.advance();
  note_done();
  messages_.release_sends();
}

void Executor::note_end(const ResolvedAction& action) {
  if (tracer_ == nullptr) return;
  const size_t event = tracer_->end(device_.held_bytes());
  const ActionOp op = action.row.op;
  if (wire::is_message(op) || op == ActionOp::kReduceGradient) under_way_.push_back({event, &action});
}

void Executor::note_ready() {
  if (meter_ != nullptr) meter_->ready();
  if (tracer_ != nullptr) tracer_->restart();
}

void Executor::note_done() {
  std::erase_if(under_way_, [&](const Traced& traced) {
    const ResolvedAction& action = *traced.action;
    const bool reduces = action.row.op == ActionOp::kReduceGradient;
    if (!(reduces ? reduction_of(action).finished() : messages_.done(action.transfer))) return false;
    tracer_->finish(traced.event);
    return true;
  });
}

Reduction& Executor::reduction_of(const ResolvedAction& action) {
  return reductions_.at({action.instance, action.update});
}

void Executor::wait_for_reduction(const Reduction& reduction) {
  const auto peer = [&] { return reduction.waits_for() >= 0 ? reduction.waits_for() : channels_.rank(); };
  channels_.wait_until([&] { return reduction.finished(); }, peer, [this] { meanwhile(); });
}

void Executor::wait_for_weights(size_t instance) {
  const auto found = exchanges_.find(instance);
  if (found == exchanges_.end() || !found->second.under_way()) return;
  WeightExchange& exchange = found->second;
  const auto peer = [&] { return exchange.waits_for() >= 0 ? exchange.waits_for() : channels_.rank(); };
  channels_.wait_until([&] { return exchange.ready(); }, peer, [this] { meanwhile(); });
  exchange.end();
}

bool Executor::needs_norm() const { return settings_.options.clip_norm > 0 && settings_.is_update(first_step_); }

// Sends partial sums of squares by stage to rank 0, and their sum in ascending stage order back to all ranks.
void Executor::find_norm() {
  std::vector<double> sums(plan_.stages.size(), 0);
  for (StageState& state : states_)
    if (state.replica == 0) sums[static_cast<size_t>(state.entry->stage)] = squared_gradient_norm(plan_, state);
  std::vector<double> total{0};
  const std::vector<std::vector<std::byte>> all = gather_.collect(to_bytes(sums));
  for (size_t stage = 0; stage < sums.size() && !all.empty(); ++stage) {
    const auto device = static_cast<size_t>(device_of(plan_, static_cast<int32_t>(stage), 0));
    total[0] += from_bytes<double>(all[device])[stage];
  }
  total = from_bytes<double>(gather_.broadcast(to_bytes(total)));
  outcome().gradient_norm = std::sqrt(total[0]);
  factor_ = clip_factor(outcome().gradient_norm, settings_.options.clip_norm);
}

void Executor::check_step() {
  checked_ = true;
  // Check for non-finite gradients first: clipping by value would hide them.
  if (loss_scale_ != nullptr)
    overflow_.check(*loss_scale_, settings_.is_update(first_step_), &gather_, channels_.rank(), outcome());
  if (guard_ != nullptr && outcome().skipped.empty())
    outcome().skipped = guard_->decide(outcome().losses, &gather_, channels_.rank());
  if (needs_norm() && outcome().skipped.empty()) find_norm();
}

void Executor::pause(const ResolvedAction& action) {
  pacer_->pause(static_cast<size_t>(&action - program_.actions.data()), [this] { meanwhile(); });
}

void Executor::reduce(const ResolvedAction& action) {
  Reduction& own = reduction_of(action);
  if (own.begun()) return;
  if (pacer_ != nullptr) pacer_->complete_gradients(action, states_[action.instance]);
  own.begin(first_step_);
}

void Executor::step(const ResolvedAction& action) {
  if (served_ != nullptr) return served_->step(action, states_[action.instance]);
  reduce(action);  // if the schedule does not contain the reduction
  wait_for_reduction(reduction_of(action));
  if (checks_step() && !checked_) {
    // All compute is done (check_update_order() ensures it), so every gradient can be reduced.
    for (auto& [place, reduction] : reductions_) reduction.begin(first_step_);
    for (const auto& [place, reduction] : reductions_) wait_for_reduction(reduction);
    check_step();
  }
  note_ready();
  if (pacer_ != nullptr) return pacer_->step(action, states_[action.instance]);
  if (!outcome().skipped.empty()) return;
  states_[action.instance].step = step_of(action);
  step_weights(states_[action.instance], action.update,
               {.samples = update_factor(plan_, action.row.range), .norm = factor_}, action.keeps_version);
  const auto exchange = exchanges_.find(action.instance);
  if (exchange == exchanges_.end() || !makes_update(states_[action.instance])) return;
  end_step(states_[action.instance]);  // its only update is made: messages take the place of gradients
  exchange->second.begin(first_step_, action.row.range);
}

void Executor::finish() {
  messages_.finish();
  note_done();
  messages_.release_sends();
}

}  // namespace graphpipe::runtime
