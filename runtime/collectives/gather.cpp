#include "runtime/collectives/gather.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "runtime/error.h"
#include "runtime/tensors.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

ChannelKey up(int32_t device) { return {ChannelKind::kGather, 0, device, 0}; }
ChannelKey down(int32_t device) { return {ChannelKind::kTotal, 0, 0, device}; }

// A tensor's name, type and dims; its bytes follow in a separate message.
std::vector<std::byte> label_of(const NamedTensor& named) {
  std::vector<int64_t> words = {static_cast<int64_t>(named.tensor.scalar_type()),
                                static_cast<int64_t>(named.name.size())};
  for (int64_t dim : named.tensor.sizes()) words.push_back(dim);
  words.push_back(-1);
  std::vector<std::byte> bytes = to_bytes(words);
  const auto name = std::as_bytes(std::span(named.name));
  bytes.insert(bytes.end(), name.begin(), name.end());
  return bytes;
}

NamedTensor empty_of_label(const std::vector<std::byte>& bytes) {
  const std::vector<int64_t> words = from_bytes<int64_t>(bytes);
  std::vector<int64_t> dims;
  size_t next = 2;
  while (next < words.size() && words[next] >= 0) dims.push_back(words[next++]);
  const size_t start = (next + 1) * sizeof(int64_t);
  if (next >= words.size() || bytes.size() != start + static_cast<size_t>(words[1]))
    fail(Code::kPeerFailed, "a rank sent a malformed tensor label", "run all ranks from one folder");
  NamedTensor named;
  named.name.assign(reinterpret_cast<const char*>(bytes.data()) + start, static_cast<size_t>(words[1]));
  named.tensor = at::empty(dims, at::TensorOptions().dtype(static_cast<at::ScalarType>(words[0])));
  return named;
}

}  // namespace

void Gather::wait_for(const PendingMessage& pending) {
  channels_.wait_until([&] { return pending.done(); }, [&] { return pending.peer; }, meanwhile_);
}

void Gather::send_to_root(std::vector<std::byte>& bytes) {
  PendingMessage pending;
  channels_.send_bytes(pending, up(channels_.rank()), bytes);
  wait_for(pending);
}

std::vector<std::vector<std::byte>> Gather::collect(std::vector<std::byte> own) {
  if (channels_.rank() != 0) {
    send_to_root(own);
    return {};
  }
  std::vector<std::vector<std::byte>> all(static_cast<size_t>(devices_));
  all[0] = std::move(own);
  for (int32_t device = 1; device < devices_; ++device) {
    PendingMessage pending;
    channels_.receive_bytes(pending, up(device), all[static_cast<size_t>(device)]);
    wait_for(pending);
  }
  return all;
}

std::vector<std::byte> Gather::broadcast(std::vector<std::byte> own) {
  PendingBroadcast pending;
  begin_broadcast(pending, std::move(own));
  return end_broadcast(pending);
}

void Gather::begin_broadcast(PendingBroadcast& pending, std::vector<std::byte> own) {
  GP_CHECK(!pending.begun);
  pending.begun = true;
  pending.bytes = std::move(own);
  if (channels_.rank() != 0)
    return channels_.receive_bytes(pending.messages.emplace_back(), down(channels_.rank()), pending.bytes);
  for (int32_t device = 1; device < devices_; ++device)
    channels_.send_bytes(pending.messages.emplace_back(), down(device), pending.bytes);
}

std::vector<std::byte> Gather::end_broadcast(PendingBroadcast& pending) {
  GP_CHECK(pending.begun);
  for (const PendingMessage& message : pending.messages) wait_for(message);
  pending.messages.clear();
  pending.begun = false;
  return std::move(pending.bytes);
}

std::vector<NamedTensor> Gather::collect_tensors(const std::vector<NamedTensor>& own) {
  const std::vector<std::vector<std::byte>> counts =
      collect(to_bytes(std::vector<int64_t>{static_cast<int64_t>(own.size())}));
  if (channels_.rank() != 0) {
    for (const NamedTensor& named : own) {
      std::vector<std::byte> label = label_of(named);
      send_to_root(label);
      PendingMessage pending;
      channels_.send(pending, up(channels_.rank()), named.tensor.contiguous(), 0, {}, 0);
      wait_for(pending);
    }
    return {};
  }
  std::map<std::string, at::Tensor> all;
  for (const NamedTensor& named : own) all.emplace(named.name, named.tensor);
  for (int32_t device = 1; device < devices_; ++device) {
    const int64_t count = from_bytes<int64_t>(counts[static_cast<size_t>(device)]).at(0);
    for (int64_t i = 0; i < count; ++i) {
      std::vector<std::byte> label;
      PendingMessage first, second;
      channels_.receive_bytes(first, up(device), label);
      wait_for(first);
      NamedTensor named = empty_of_label(label);
      channels_.receive(second, up(device), named.tensor, 0, {}, 0);
      wait_for(second);
      all.emplace(std::move(named.name), std::move(named.tensor));
    }
  }
  std::vector<NamedTensor> sorted;
  for (auto& [name, tensor] : all) sorted.push_back({name, tensor});
  return sorted;
}

}  // namespace graphpipe::runtime
