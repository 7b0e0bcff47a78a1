#include "runtime/executor/executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/error.h"
#include "runtime/executor/check_loss.h"
#include "runtime/executor/update_weights.h"
#include "runtime/optimizers/gradient_norm.h"
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
      pending_(program.transfers.size()),
      staging_(program.transfers.size()),
      cuts_(program.transfers.size()),
      assemblies_(program.arrivals.size()) {
  check_order();
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const StageEntry& entry = *program.instances[i].entry;
    const auto slots = static_cast<size_t>(plan.stages[static_cast<size_t>(entry.stage)].slots);
    slots_.emplace_back(slots, Slot(static_cast<size_t>(entry.slot_size)));
    sends_of_slot_.emplace_back(slots);
  }
  std::vector<const Reduction*> last(program.instances.size(), nullptr);
  for (const ResolvedAction& action : program.actions) {
    if (action.row.op != ActionOp::kStep) continue;
    const Reduction*& earlier = last[action.instance];
    const auto [place, added] = reductions_.try_emplace({action.instance, action.update}, plan, channels, device,
                                                        states[action.instance], action.row.range, earlier);
    earlier = &place->second;
  }
  for (size_t i = 0; i < program.transfers.size(); ++i) {
    pending_[i].resize(static_cast<size_t>(program.transfers[i].parts));
    staging_[i].resize(static_cast<size_t>(program.transfers[i].parts));
    cuts_[i].resize(static_cast<size_t>(program.transfers[i].parts));
  }
  for (const ResolvedAction& action : program.actions)
    if (wire::is_receive(action.row.op))
      assemblies_[program.transfers[action.transfer].arrival].transfers.push_back(action.transfer);
}

StepOutcome Executor::run_step(int64_t step) {
  step_ = step;
  factor_ = 1;
  judged_ = false;
  outcome_ = {.losses = {}, .samples = data_.samples_of(step)};
  if (loss_scale_ != nullptr) outcome_.loss_scale = loss_factor_ = loss_scale_->scale();
  for (auto& [place, reduction] : reductions_) reduction.reset();
  if (trains())
    for (StageState& state : states_) begin_step(state, step);
  if (guard_ != nullptr) guard_->begin(places_of(states_));
  if (loss_scale_ != nullptr) overflow_.begin(places_of(states_));
  if (scales_loss(program_)) loss_scales_.emplace(plan_, data_, step);
  for (const ResolvedAction& action : program_.actions) {
    channels_.publish(action.row, step);
    if (tracer_ != nullptr) tracer_->begin(action.row, step, device_.held_bytes());
    if (meter_ != nullptr) meter_->begin(action.instance);
    run(action);
    if (meter_ != nullptr) meter_->end();
    if (action.ends_item)
      for (at::Tensor& tensor : slot_of(action)) tensor.reset();
    note_end(action);
    channels_.progress();
    meanwhile();
  }
  // What is judged is a sum over all ranks: one without weights to step joins it too.
  if (judges_step() && !judged_) judge_step();
  if (loss_scales_) outcome_.loss_divisor = loss_scales_->total();
  return std::move(outcome_);
}

void Executor::run(const ResolvedAction& action) {
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
      return receive(action);
    case ActionOp::kSlice:
      return slice(action);
    case ActionOp::kConcatenate:
      return concatenate(action);
    case ActionOp::kOffload:
      return offload(action);
    case ActionOp::kReload:
      return reload(action);
    case ActionOp::kReduceGradient:
      reduction_of(action).begin(step_);
      return;
    case ActionOp::kNorm:
      // The norm needs every reduction; the first step waits for them and finds it.
      return;
    case ActionOp::kStep:
      return step(action);
    case ActionOp::kPublish:
      return;  // forwards name the version that they read
    case ActionOp::kAllocate:
    case ActionOp::kRelease:
      return;  // slots are there from the start, and cleared after the item's last action
    case ActionOp::kFlush:
    case ActionOp::kTraceMark:
      return;  // the list itself ends all items before it; a mark shows in the trace
    case ActionOp::kFreeVersion:
      return free_version(states_[action.instance], action.row.version);
  }
}

void Executor::call(StageFunction function, const ResolvedAction& action, bool again) {
  if (function == nullptr) return;
  StageState& state = states_[action.instance];
  function({.weights = (trains() ? weights_of(state, action.row.version) : state.weights).data(),
            .gradients = trains() ? gradients_of(state, action.update).data() : nullptr,
            .slot = slot_of(action).data(),
            .samples = action.row.range.size(),
            .first_sample = action.row.range.first,
            .seed = seed_,
            .step = static_cast<uint64_t>(step_),
            .recompute = again,
            .keeps_outputs = outputs_ != nullptr});
}

void Executor::forward(const ResolvedAction& action, bool again) {
  const StageEntry& entry = entry_of(action);
  if (!again) {
    wait_for_sends(action.instance, action.row.slot);
    place_arrivals(action);
    fill_inputs(action);
    note_ready();
  }
  call(entry.forward, action, again);
  if (again) return;
  if (outputs_ != nullptr)
    outputs_->keep(entry, slot_of(action), action.row.range, step_ * plan_.batch + action.row.range.first, device_);
  if (entry.loss_slot >= 0) {
    const at::Tensor& loss = slot_of(action)[static_cast<size_t>(entry.loss_slot)];
    const double value = loss.item<double>() / loss_factor_;
    if (trains()) check_finite(value, action);
    outcome_.losses.push_back({action.row.range.first, value * loss_scales_->share(action.row.range)});
  }
  if (plan_.stages[static_cast<size_t>(entry.stage)].recompute) drop_for_recompute(action);
}

void Executor::check_finite(double loss, const ResolvedAction& action) {
  std::optional<std::string> problem =
      loss_problem(loss, plan_, states_[action.instance], slot_of(action), action.row, step_, device_);
  if (!problem) return;
  overflow_.note_loss();
  if (guard_ != nullptr) guard_->note(std::move(*problem));
  else if (loss_scale_ == nullptr) fail_of_loss(std::move(*problem));
}

void Executor::scale_loss(LossScale& scale) {
  loss_scale_ = &scale;
  check_order();
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
  check_order();
}

void Executor::fill_inputs(const ResolvedAction& action) {
  const StageEntry& entry = entry_of(action);
  Slot& slot = slot_of(action);
  for (const DataRow& row : entry.data)
    slot[static_cast<size_t>(row.slot)] = device_.upload(data_.item(row, step_, action.row.range));
  if (entry.loss_scale_slot >= 0)
    slot[static_cast<size_t>(entry.loss_scale_slot)] =
        device_.upload(loss_scale_tensor(loss_scales_->divisor(action.row.range) / loss_factor_));
}

// Keeps what a recompute starts from, and what is still to be sent.
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
    place_arrivals(action);
    note_ready();
    call(entry.input_gradient, action, false);
  }
  if (action.row.op != ActionOp::kInputGradient) call(entry.weight_gradient, action, false);
}

at::Tensor Executor::rows_to_send(const ResolvedAction& action, int32_t part) {
  const Transfer& transfer = program_.transfers[action.transfer];
  const at::Tensor& value = slot_of(action)[static_cast<size_t>(transfer.first_slot + part)];
  return message_rows(value, transfer.boundary->tensor, transfer.item, action.row.range);
}

// Rows that lie together stay where they are; others are copied out.
void Executor::slice(const ResolvedAction& action) {
  for (int32_t part = 0; part < program_.transfers[action.transfer].parts; ++part)
    cuts_[action.transfer][static_cast<size_t>(part)] = rows_to_send(action, part);
}

void Executor::send(const ResolvedAction& action) {
  const Transfer& transfer = program_.transfers[action.transfer];
  wait_for_transfers({action.transfer});  // of the step before
  if (meter_ != nullptr) meter_->ready();
  note_done();
  Slot& slot = slot_of(action);
  for (int32_t part = 0; part < transfer.parts; ++part) {
    at::Tensor rows = std::exchange(cuts_[action.transfer][static_cast<size_t>(part)], at::Tensor());
    if (!rows.defined()) rows = rows_to_send(action, part);
    if (!channels_.takes_device_memory(transfer.key)) rows = device_.download(rows);
    channels_.send(pending_[action.transfer][static_cast<size_t>(part)], transfer.key, std::move(rows), step_,
                   action.row.range, part);
  }
  sends_of_slot_[action.instance][static_cast<size_t>(action.row.slot)].push_back(action.transfer);
  const bool recompute = plan_.stages[static_cast<size_t>(action.row.stage)].recompute;
  if (recompute && action.row.op == ActionOp::kSendForward && is_last_send(action))
    slot[static_cast<size_t>(transfer.first_slot)].reset();
}

// Whether no later send of the program takes other rows of the same value of the same item.
bool Executor::is_last_send(const ResolvedAction& action) const {
  const auto after = program_.actions.begin() + (&action - program_.actions.data()) + 1;
  for (auto other = after; other != program_.actions.end(); ++other) {
    if (other->instance != action.instance || other->row.slot != action.row.slot) continue;
    if (other->row.op == ActionOp::kForward) return true;
    if (other->row.op == action.row.op && other->row.edge == action.row.edge) return false;
  }
  return true;
}

void Executor::receive(const ResolvedAction& action) {
  const Transfer& transfer = program_.transfers[action.transfer];
  const TensorRow& row = transfer.boundary->tensor;
  note_done();
  Assembly& assembly = assemblies_[transfer.arrival];
  const bool on_device = channels_.takes_device_memory(transfer.key);
  for (int32_t part = 0; part < transfer.parts; ++part) {
    const auto index = static_cast<size_t>(part);
    if (assembly.parts.size() <= index) {
      const at::Tensor whole = empty_tensor(row, transfer.item.size());
      assembly.parts.push_back(on_device ? device_.upload(whole) : whole);
    }
    const at::Tensor rows = rows_of(assembly.parts[index], row, transfer.item, action.row.range);
    at::Tensor& staged = staging_[action.transfer][index];
    // Rows that are not dense in the item, or lie in the other memory, land beside it.
    staged.reset();
    if (!rows.is_contiguous() || rows.is_cpu() == on_device) {
      staged = empty_tensor(row, action.row.range.size());
      if (on_device) staged = device_.upload(staged);
    }
    channels_.receive(pending_[action.transfer][index], transfer.key, staged.defined() ? staged : rows, step_,
                      action.row.range, part);
  }
}

void Executor::concatenate(const ResolvedAction& action) {
  if (program_.arrivals[action.arrivals.front()].boundary->is_input) wait_for_sends(action.instance, action.row.slot);
  place_arrivals(action);
  note_ready();
}

// Devices that are their own host keep everything where it is.
void Executor::offload(const ResolvedAction& action) {
  if (device_.is_host()) return;
  Slot& slot = slot_of(action);
  for (size_t i = 0; i < slot.size(); ++i) {
    if (!slot[i].defined() || slot[i].is_cpu()) continue;
    slot[i] = device_.download(slot[i]);
    away_[{action.instance, action.row.slot}].push_back(i);
  }
}

void Executor::reload(const ResolvedAction& action) {
  Slot& slot = slot_of(action);
  for (size_t index : away_[{action.instance, action.row.slot}]) slot[index] = device_.upload(slot[index]);
  away_.erase({action.instance, action.row.slot});
}

void Executor::place_arrivals(const ResolvedAction& action) {
  Slot& slot = slot_of(action);
  for (size_t index : action.arrivals) {
    Assembly& assembly = assemblies_[index];
    const Arrival& arrival = program_.arrivals[index];
    wait_for_transfers(assembly.transfers);
    for (size_t transfer : assembly.transfers) {
      for (size_t part = 0; part < pending_[transfer].size(); ++part) {
        PendingMessage& pending = pending_[transfer][part];
        if (at::Tensor& staged = staging_[transfer][part]; staged.defined()) {
          rows_of(assembly.parts[part], arrival.boundary->tensor, arrival.item, pending.message.header.range)
              .copy_(staged);
          staged.reset();
        }
        pending.tensor.reset();
      }
    }
    for (size_t part = 0; part < assembly.parts.size(); ++part)
      slot[static_cast<size_t>(arrival.first_slot) + part] = device_.upload(assembly.parts[part]);
    assembly.parts.clear();
  }
}

void Executor::wait_for_transfers(const std::vector<size_t>& transfers) {
  const PendingMessage* awaited = nullptr;
  const auto ready = [&] {
    for (size_t transfer : transfers)
      for (const PendingMessage& pending : pending_[transfer])
        if (!pending.done()) return awaited = &pending, false;
    return true;
  };
  channels_.wait_until(
      ready, [&] { return awaited->peer; }, [this] { meanwhile(); });
}

void Executor::wait_for_sends(size_t instance, int32_t slot) {
  std::vector<size_t>& sends = sends_of_slot_[instance][static_cast<size_t>(slot)];
  wait_for_transfers(std::vector<size_t>(sends));
  release_sends();
}

// Lets go of tensors whose sends are done.
void Executor::release_sends() {
  for (auto& slots : sends_of_slot_) {
    for (std::vector<size_t>& sends : slots) {
      std::erase_if(sends, [&](size_t transfer) {
        for (PendingMessage& pending : pending_[transfer]) {
          if (!pending.done()) return false;
          pending.tensor.reset();
        }
        return true;
      });
    }
  }
}

void Executor::meanwhile() {
  for (auto& [place, reduction] : reductions_) reduction.advance();
  note_done();
  release_sends();
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
    if (action.row.op == ActionOp::kReduceGradient) {
      if (!reduction_of(action).finished()) return false;
    } else {
      for (const PendingMessage& pending : pending_[action.transfer])
        if (!pending.done()) return false;
    }
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

// What a step is judged by needs every gradient of the training step: no compute may come after it on this device.
void Executor::check_order() const {
  bool stepped = false;
  for (const ResolvedAction& action : program_.actions) {
    const bool again = action.row.op == ActionOp::kStep && action.row.version > 1;
    stepped = stepped || action.row.op == ActionOp::kStep;
    if (again && settings_.options.accumulate > 1)
      fail(Code::kBadSchedule, describe(plan_, action.row) + " is not the only update of a training step",
           "run it without --accumulate: such schedules update as often as they say");
    const bool judges = settings_.options.clip_norm > 0 || guard_ != nullptr || loss_scale_ != nullptr;
    if (stepped && judges && (again || wire::is_compute(action.row.op)))
      fail(Code::kBadSchedule,
           describe(plan_, action.row) + " comes after a STEP, so the gradients of the whole step are not known there",
           loss_scale_ != nullptr
               ? "compile fp16 with a synchronous policy, or in bf16, which needs no loss scale; or pass --loss-scale 0"
               : "run it without --clip-norm and --on-anomaly skip, or put every STEP of the device at its end");
  }
}

bool Executor::needs_norm() const { return settings_.options.clip_norm > 0 && settings_.is_update(step_); }

// Partial sums of squares by stage to rank 0, their sum in ascending stage order back to all.
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
  outcome_.gradient_norm = std::sqrt(total[0]);
  factor_ = clip_factor(outcome_.gradient_norm, settings_.options.clip_norm);
}

void Executor::judge_step() {
  judged_ = true;
  // First what the gradients are: clipping their values would hide infinities.
  if (loss_scale_ != nullptr)
    outcome_.skipped = overflow_.judge(*loss_scale_, settings_.is_update(step_), &gather_, channels_.rank());
  if (guard_ != nullptr && outcome_.skipped.empty())
    outcome_.skipped = guard_->decide(outcome_.losses, &gather_, channels_.rank());
  if (needs_norm() && outcome_.skipped.empty()) find_norm();
}

void Executor::step(const ResolvedAction& action) {
  Reduction& own = reduction_of(action);
  own.begin(step_);  // where the schedule names none
  wait_for_reduction(own);
  if (judges_step() && !judged_) {
    // All compute is over (check_order() sees to it), so every gradient can be reduced.
    for (auto& [place, reduction] : reductions_) reduction.begin(step_);
    for (const auto& [place, reduction] : reductions_) wait_for_reduction(reduction);
    judge_step();
  }
  note_ready();
  if (!outcome_.skipped.empty()) return;
  step_weights(states_[action.instance], action.update,
               {.samples = update_factor(plan_, action.row.range), .norm = factor_}, action.keeps_version);
}

void Executor::finish() {
  for (auto& slots : sends_of_slot_)
    for (std::vector<size_t>& sends : slots) wait_for_transfers(std::vector<size_t>(sends));
  note_done();
  release_sends();
}

}  // namespace graphpipe::runtime
