#include "runtime/executor/messages.h"

#include <algorithm>
#include <utility>

#include "runtime/tensors.h"

namespace graphpipe::runtime {

using wire::ActionOp;

Messages::Messages(const PlanTable& plan, const ResolvedProgram& program, Channels& channels, const Device& device,
                   std::function<void()> meanwhile)
    : plan_(plan),
      program_(program),
      channels_(channels),
      device_(device),
      meanwhile_(std::move(meanwhile)),
      pending_(program.transfers.size()),
      staging_(program.transfers.size()),
      slices_(program.transfers.size()),
      assemblies_(program.arrivals.size()) {
  for (const Instance& instance : program.instances)
    sends_of_slot_.emplace_back(static_cast<size_t>(plan.stages[static_cast<size_t>(instance.entry->stage)].slots));
  for (size_t i = 0; i < program.transfers.size(); ++i) {
    const auto parts = static_cast<size_t>(program.transfers[i].parts);
    pending_[i].resize(parts);
    staging_[i].resize(parts);
    slices_[i].resize(parts);
  }
  for (const ResolvedAction& action : program.actions)
    if (wire::is_receive(action.row.op))
      assemblies_[program.transfers[action.transfer].arrival].transfers.push_back(action.transfer);
}

bool Messages::done(size_t transfer) const {
  return std::ranges::all_of(pending_[transfer], [](const PendingMessage& pending) { return pending.done(); });
}

void Messages::wait(size_t transfer) { wait_for_transfers({transfer}); }

void Messages::finish() {
  for (const auto& slots : sends_of_slot_)
    for (const std::vector<size_t>& sends : slots) wait_for_transfers(std::vector<size_t>(sends));
}

at::Tensor Messages::rows_to_send(const ResolvedAction& action, int32_t part, const Slot& slot) const {
  const Transfer& transfer = program_.transfers[action.transfer];
  const at::Tensor& value = slot[static_cast<size_t>(transfer.first_slot + part)];
  return message_rows(value, transfer.boundary->tensor, transfer.item, action.row.range);
}

// Contiguous rows stay where they are; others are copied out.
void Messages::slice(const ResolvedAction& action, const Slot& slot) {
  for (int32_t part = 0; part < program_.transfers[action.transfer].parts; ++part)
    slices_[action.transfer][static_cast<size_t>(part)] = rows_to_send(action, part, slot);
}

void Messages::send(const ResolvedAction& action, Slot& slot, int64_t step) {
  const Transfer& transfer = program_.transfers[action.transfer];
  for (int32_t part = 0; part < transfer.parts; ++part) {
    at::Tensor rows = std::exchange(slices_[action.transfer][static_cast<size_t>(part)], at::Tensor());
    if (!rows.defined()) rows = rows_to_send(action, part, slot);
    if (!channels_.takes_device_memory(transfer.key)) rows = device_.download(rows);
    channels_.send(pending_[action.transfer][static_cast<size_t>(part)], transfer.key, std::move(rows), step,
                   action.row.range, part);
  }
  sends_of_slot_[action.instance][static_cast<size_t>(action.row.slot)].push_back(action.transfer);
  const bool recompute = plan_.stages[static_cast<size_t>(action.row.stage)].recompute;
  if (recompute && action.row.op == ActionOp::kSendForward && is_last_send(action))
    slot[static_cast<size_t>(transfer.first_slot)].reset();
}

// Whether no later send of the program carries other rows of the same value of the same item.
bool Messages::is_last_send(const ResolvedAction& action) const {
  const auto after = program_.actions.begin() + (&action - program_.actions.data()) + 1;
  for (auto other = after; other != program_.actions.end(); ++other) {
    if (other->instance != action.instance || other->row.slot != action.row.slot) continue;
    if (other->row.op == ActionOp::kForward) return true;
    if (other->row.op == action.row.op && other->row.edge == action.row.edge) return false;
  }
  return true;
}

void Messages::receive(const ResolvedAction& action, int64_t step) {
  const Transfer& transfer = program_.transfers[action.transfer];
  const TensorRow& row = transfer.boundary->tensor;
  Assembly& assembly = assemblies_[transfer.arrival];
  const bool on_device = channels_.takes_device_memory(transfer.key);
  const int32_t gpu = on_device ? device_.gpu() : -1;
  for (int32_t part = 0; part < transfer.parts; ++part) {
    const auto index = static_cast<size_t>(part);
    if (assembly.parts.size() <= index) assembly.parts.push_back(empty_tensor(row, transfer.item.size(), gpu));
    const at::Tensor rows = rows_of(assembly.parts[index], row, transfer.item, action.row.range);
    at::Tensor& staged = staging_[action.transfer][index];
    // Rows that are not contiguous in the item, or lie in the other memory, are received into a staging tensor.
    staged.reset();
    if (!rows.is_contiguous() || rows.is_cpu() == on_device) staged = empty_tensor(row, action.row.range.size(), gpu);
    channels_.receive(pending_[action.transfer][index], transfer.key, staged.defined() ? staged : rows, step,
                      action.row.range, part);
  }
}

void Messages::place_arrivals(const ResolvedAction& action, Slot& slot) {
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

void Messages::wait_for_transfers(const std::vector<size_t>& transfers) {
  const PendingMessage* awaited = nullptr;
  const auto ready = [&] {
    for (size_t transfer : transfers)
      for (const PendingMessage& pending : pending_[transfer])
        if (!pending.done()) return awaited = &pending, false;
    return true;
  };
  channels_.wait_until(
      ready, [&] { return awaited->peer; }, meanwhile_);
}

void Messages::wait_for_sends(size_t instance, int32_t slot) {
  std::vector<size_t>& sends = sends_of_slot_[instance][static_cast<size_t>(slot)];
  wait_for_transfers(std::vector<size_t>(sends));
  release_sends();
}

void Messages::release_sends() {
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

}  // namespace graphpipe::runtime
