#include "runtime/training/step_guard.h"

#include <cmath>
#include <utility>

#include "runtime/collectives/gather.h"
#include "runtime/error.h"
#include "runtime/optimizers/gradient_norm.h"

namespace graphpipe::runtime {
namespace {

using Bytes = std::vector<std::byte>;

// The losses' number, the losses, then the words.
Bytes packed(const std::vector<LossShare>& losses, const std::string& words) {
  Bytes bytes = to_bytes(std::vector<uint64_t>{losses.size()});
  const Bytes values = to_bytes(losses);
  bytes.insert(bytes.end(), values.begin(), values.end());
  const auto text = std::as_bytes(std::span(words));
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

std::string words_in(const Bytes& bytes, size_t from) {
  return {reinterpret_cast<const char*>(bytes.data()) + from, bytes.size() - from};
}

void unpack(const Bytes& bytes, std::vector<LossShare>& losses, std::vector<std::string>& found) {
  constexpr size_t kHead = sizeof(uint64_t);
  const uint64_t count = bytes.size() < kHead ? 1 : from_bytes<uint64_t>({bytes.begin(), bytes.begin() + kHead})[0];
  if (bytes.size() < kHead || count > (bytes.size() - kHead) / sizeof(LossShare))
    fail(Code::kPeerFailed, "a rank sent malformed findings of a step", "run all ranks from one folder");
  const size_t end = kHead + count * sizeof(LossShare);
  const auto first = bytes.begin() + kHead;
  for (const LossShare& share : from_bytes<LossShare>({first, bytes.begin() + static_cast<std::ptrdiff_t>(end)}))
    losses.push_back(share);
  if (end < bytes.size()) found.push_back(words_in(bytes, end));
}

}  // namespace

void StepGuard::begin(const std::vector<StageState*>& states) {
  states_ = states;
  found_.clear();
  verdict_.clear();
  decided_ = false;
  statistics_.clear();
  for (const StageState* state : states_) {
    std::vector<at::Tensor>& kept = statistics_.emplace_back(state->weights.size());
    for (size_t i = 0; i < kept.size(); ++i)
      if (state->entry->params[i].role == ParamRole::kBuffer) kept[i] = state->weights[i].clone();
  }
}

void StepGuard::note(std::string problem) {
  if (found_.empty()) found_ = std::move(problem);
}

void StepGuard::look_at_gradients() {
  for (StageState* state : states_)
    for (const size_t index : state->trainable) {
      const at::Tensor& gradient = gradients_of(*state, 0)[index];
      if (!found_.empty() || !gradient.defined() || std::isfinite(squared_norm(gradient))) continue;
      note(text("the gradient of ", quoted(ModelText(state->entry->params[index].name)), ", of stage ",
                state->entry->stage, ", is not finite"));
    }
}

std::string StepGuard::judge(const std::vector<LossShare>& losses, const std::vector<std::string>& found) {
  if (!found.empty()) return found.front();
  if (losses.empty()) return "";
  const double loss = total_loss(losses);
  if (const std::optional<std::string> problem = limit_.problem(loss)) return *problem;
  limit_.keep(loss);
  return "";
}

std::string StepGuard::decide(const std::vector<LossShare>& losses, Gather* gather, int32_t rank) {
  look_at_gradients();
  Bytes own = packed(losses, found_);
  std::vector<Bytes> of_ranks;
  if (gather != nullptr) of_ranks = gather->collect(std::move(own));
  else of_ranks.push_back(std::move(own));
  if (rank == 0) {
    std::vector<LossShare> all;
    std::vector<std::string> found;
    for (const Bytes& bytes : of_ranks) unpack(bytes, all, found);
    verdict_ = judge(all, found);
  }
  if (gather != nullptr) {
    const auto bytes = std::as_bytes(std::span(verdict_));
    verdict_ = words_in(gather->broadcast({bytes.begin(), bytes.end()}), 0);
  }
  decided_ = true;
  if (skips()) put_back();
  return verdict_;
}

void StepGuard::put_back() const {
  for (size_t s = 0; s < states_.size(); ++s)
    for (size_t i = 0; i < statistics_[s].size(); ++i)
      if (statistics_[s][i].defined()) states_[s]->weights[i].copy_(statistics_[s][i]);
}

}  // namespace graphpipe::runtime
