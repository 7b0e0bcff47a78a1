#include "runtime/server/parameter_server.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "runtime/error.h"
#include "runtime/executor/update_weights.h"
#include "runtime/io/data.h"
#include "runtime/step_samples.h"
#include "support/check.h"

namespace graphpipe::runtime {

ParameterServer::ParameterServer(const PlanTable& plan, Channels& channels, const Device& device,
                                 const StageState& state, int64_t bound)
    : plan_(plan), channels_(channels), bound_(bound) {
  const int32_t workers = plan.stages.front().replicas - 1;
  if (bound < workers - 1)
    fail(Code::kUsage,
         text("--staleness ", bound, ": while one of ", workers, " workers computes, the others make ", workers - 1,
              " updates"),
         text("give ", workers - 1, " or more, or compile for fewer devices"));
  for (int32_t replica = 1; replica <= workers; ++replica) {
    std::vector<at::Tensor> tensors(state.weights.size());
    for (const size_t index : state.trainable) tensors[index] = at::empty_like(state.weights[index]);
    workers_.push_back({.rank = device_of(plan, 0, replica),
                        .messages = ParameterMessages(channels, device, state, replica),
                        .tensors = std::move(tensors)});
  }
}

void ParameterServer::begin(const ResolvedProgram& program, int64_t first_step) {
  items_.clear();
  for (const ResolvedAction& action : program.actions)
    if (action.row.op == wire::ActionOp::kStep) items_.push_back(action.row.range);
  first_step_ = first_step;
  updates_ = 0;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (i < items_.size()) workers_[i].item = i;
    workers_[i].read = static_cast<int64_t>(i + 1) - std::ssize(workers_);
    workers_[i].is_sending = true;  // an empty send, so that its gradients are requested next
  }
}

void ParameterServer::step(const ResolvedAction& action, StageState& state) {
  Worker* next = nullptr;
  const auto is_there = [&] {
    advance_all();
    return (next = next_worker()) != nullptr;
  };
  channels_.wait_until(is_there, [this] { return waits_for(); });
  apply(*next, action.update, state);
  const size_t item = *next->item + workers_.size();
  next->item = item < items_.size() ? std::optional(item) : std::nullopt;
  next->read = updates_;
  if (next->item) send_weights(*next, state);
}

void ParameterServer::drain(StageState& state) {
  GP_CHECK(updates_ == std::ssize(items_));
  for (Worker& worker : workers_) send_weights(worker, state);
  for (const Worker& worker : workers_)
    channels_.wait_until([&] { return worker.messages.done(); }, [&] { return worker.rank; });
}

std::optional<wire::Staleness> ParameterServer::staleness() const {
  const double mean = static_cast<double>(sum_of_ages_) / static_cast<double>(std::max<int64_t>(all_updates_, 1));
  return wire::Staleness{.bound = bound_, .largest = largest_age_, .mean = mean, .updates = all_updates_};
}

void ParameterServer::advance(Worker& worker) {
  if (!worker.item || !worker.is_sending || !worker.messages.done()) return;
  worker.messages.receive(worker.tensors, /*to_server=*/true, first_step_, items_[*worker.item]);
  worker.is_sending = false;
}

void ParameterServer::advance_all() {
  for (Worker& worker : workers_) advance(worker);
}

// Whether the gradients of all other workers, applied after this one in the order in which they have read their
// weights, would still be within the bound.
bool ParameterServer::may_apply(const Worker& worker) const {
  std::vector<int64_t> reads;
  for (const Worker& other : workers_)
    if (&other != &worker && other.item) reads.push_back(other.read);
  std::ranges::sort(reads);
  for (size_t i = 0; i < reads.size(); ++i)
    if (updates_ + 1 + static_cast<int64_t>(i) - reads[i] > bound_) return false;
  return true;
}

// Among the workers whose gradients have arrived and may be applied, the one with the earliest samples.
ParameterServer::Worker* ParameterServer::next_worker() {
  Worker* next = nullptr;
  for (Worker& worker : workers_) {
    const bool is_here = worker.item && !worker.is_sending && worker.messages.done();
    if (is_here && may_apply(worker) && (next == nullptr || *worker.item < *next->item)) next = &worker;
  }
  return next;
}

void ParameterServer::apply(Worker& worker, int64_t update, StageState& state) {
  worker.messages.take();
  const wire::SampleRange range = items_[*worker.item];
  std::vector<at::Tensor>& gradients = gradients_of(state, update);
  for (const size_t index : state.trainable) gradients[index] = worker.tensors[index];
  state.step = first_step_ + steps_before(plan_, range);
  step_weights(state, update, {.samples = update_factor(plan_, range)}, /*keep=*/false);
  const int64_t age = updates_ - std::max<int64_t>(worker.read, 0);
  GP_CHECK(age <= bound_);
  ++updates_;
  ++all_updates_;
  sum_of_ages_ += age;
  largest_age_ = std::max(largest_age_, age);
}

void ParameterServer::send_weights(Worker& worker, const StageState& state) {
  // A copy: the next update changes the weights while they are in flight. The gradients may be kept for saving.
  for (const size_t index : state.trainable) {
    if (state.keeps_gradients) worker.tensors[index] = at::empty_like(state.weights[index]);
    worker.tensors[index].copy_(state.weights[index]);
  }
  worker.messages.send(worker.tensors, /*to_server=*/false, first_step_, {});
  worker.is_sending = true;
}

// The worker whose gradients must arrive first.
int32_t ParameterServer::waits_for() const {
  const Worker* slowest = nullptr;
  for (const Worker& worker : workers_) {
    const bool is_late = worker.item && !worker.messages.done();
    if (is_late && (slowest == nullptr || worker.read < slowest->read)) slowest = &worker;
  }
  return slowest != nullptr ? slowest->rank : plan_.server;
}

}  // namespace graphpipe::runtime
