#include "runtime/training/step_guard.h"

#include <optional>
#include <span>
#include <utility>

#include "runtime/collectives/gather.h"
#include "runtime/collectives/message_parts.h"
#include "runtime/error.h"
#include "runtime/training/finite_gradients.h"

namespace graphpipe::runtime {
namespace {

using MessageBytes = std::vector<std::byte>;

MessageBytes bytes_of_words(const std::string& words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}
std::string words_in(const MessageBytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

void StepGuard::begin(const std::vector<StageState*>& states, const KeptStatistics& statistics) {
  states_ = states;
  of_loss_.clear();
  of_gradients_.clear();
  verdict_.clear();
  statistics_ = &statistics;
}

void StepGuard::note(std::string problem) {
  if (of_loss_.empty()) of_loss_ = std::move(problem);
}

void StepGuard::look_at_gradients() {
  for (StageState* state : states_) {
    const std::optional<size_t> found = not_finite_gradient(*state);
    if (!found) continue;
    of_gradients_ = text("the gradient of ", quoted(ModelText(state->entry->params[*found].name)), ", of stage ",
                         state->entry->stage, ", is not finite");
    return;
  }
}

void StepGuard::add(const MessageBytes& of_rank, Findings& findings) {
  const std::optional<std::vector<MessageBytes>> parts = parts_of(of_rank, 3);
  if (!parts) fail(Code::kPeerFailed, "a rank sent malformed findings of a step", "run all ranks from one folder");
  for (const LossShare& share : from_bytes<LossShare>((*parts)[0])) findings.losses.push_back(share);
  if (findings.of_loss.empty()) findings.of_loss = words_in((*parts)[1]);
  if (findings.of_gradients.empty()) findings.of_gradients = words_in((*parts)[2]);
}

std::string StepGuard::reason_to_skip(const Findings& findings) {
  if (!findings.of_loss.empty()) return findings.of_loss;
  if (!findings.of_gradients.empty()) return findings.of_gradients;
  if (findings.losses.empty()) return "";
  const double loss = total_loss(findings.losses);
  if (const std::optional<std::string> problem = limit_.problem(loss)) return *problem;
  limit_.keep(loss);
  return "";
}

std::string StepGuard::decide(const std::vector<LossShare>& losses, Gather* gather, int32_t rank) {
  look_at_gradients();
  MessageBytes own;
  add_part(own, to_bytes(losses));
  add_part(own, bytes_of_words(of_loss_));
  add_part(own, bytes_of_words(of_gradients_));
  std::vector<MessageBytes> of_ranks;
  if (gather != nullptr) of_ranks = gather->collect(std::move(own));
  else of_ranks.push_back(std::move(own));
  if (rank == 0) {
    Findings findings;
    for (const MessageBytes& of_rank : of_ranks) add(of_rank, findings);
    verdict_ = reason_to_skip(findings);
  }
  if (gather != nullptr) verdict_ = words_in(gather->broadcast(bytes_of_words(verdict_)));
  if (skips()) statistics_->put_back();
  return verdict_;
}

void check_defined(const LossScales& scales, StepGuard* guard) {
  if (scales.undefined().empty()) return;
  if (guard == nullptr)
    fail(Code::kBadData, scales.undefined(),
         "use a batch in which some labels count, or, where the schedule is synchronous, skip such steps with "
         "--on-anomaly skip; where it is not, each update needs some: plan with a larger --micro-batch");
  guard->note(scales.undefined());
}

}  // namespace graphpipe::runtime
