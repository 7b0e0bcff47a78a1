#include "runtime/training/evaluation.h"

#include <algorithm>
#include <cmath>

#include "runtime/checkpoint/background_writer.h"
#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

// The first of a rank's shares is the divisor of the shares of all ranks, 0 if the rank has no loss.
constexpr int64_t kDivisor = -1;

}  // namespace

Request Evaluation::after_step(const StepFacts& facts) {
  const int64_t every = options_.data.eval_every;
  trained_ = facts.step + 1;
  if (facts.is_last || (every > 0 && trained_ % every == 0)) evaluate();
  return {};
}

void Evaluation::at_end() {
  if (trained_ != evaluated_) evaluate();
}

void Evaluation::evaluate() {
  evaluated_ = trained_;
  if (setup_.begin) setup_.begin();
  std::vector<LossShare> own = run_batches();
  std::vector<std::vector<LossShare>> of_ranks;
  if (setup_.gather == nullptr) of_ranks.push_back(std::move(own));
  else
    for (const std::vector<std::byte>& bytes : setup_.gather->collect(to_bytes(own)))
      of_ranks.push_back(from_bytes<LossShare>(bytes));
  if (setup_.outputs != nullptr) write_outputs();
  if (setup_.rank != 0) return;
  result_.eval_steps.push_back(trained_);
  result_.eval_losses.push_back(loss_of(of_ranks));
  if (!options_.output.json || options_.output.progress) setup_.say(wire::eval_line(result_));
}

// Sums, not means: batches may have different weights.
std::vector<LossShare> Evaluation::run_batches() const {
  if (setup_.outputs != nullptr) setup_.outputs->clear();
  std::vector<LossShare> shares{{kDivisor, 0}};
  for (int64_t batch = 0; batch < setup_.batches; ++batch) {
    const StepOutcome outcome = setup_.run_batch(batch);
    shares.front().value += outcome.loss_divisor;
    for (const LossShare& share : outcome.losses)
      shares.push_back({batch * setup_.plan->batch + share.first_sample, share.value * outcome.loss_divisor});
  }
  if (setup_.end) setup_.end();
  return shares;
}

void Evaluation::write_outputs() const {
  std::vector<NamedTensor> parts;
  if (setup_.gather != nullptr) {
    parts = setup_.gather->collect_tensors(setup_.outputs->parts());
  } else {
    parts = setup_.outputs->parts();
    std::ranges::sort(parts, {}, &NamedTensor::name);
  }
  const auto write = [&] { graphpipe::runtime::write_outputs(options_.output.save_eval_outputs, parts); };
  if (setup_.rank == 0 && setup_.wait) {
    // Writing may take longer than the other ranks would wait for a silent one.
    BackgroundWriter writer;
    writer.start(write);
    setup_.wait([&] { return writer.is_idle(); });
    writer.rethrow();
  } else if (setup_.rank == 0) {
    write();
  }
  setup_.outputs->clear();
}

std::unique_ptr<Evaluation> evaluation_of(const PlanTable& plan, const Data* data, const wire::RunOptions& options,
                                          wire::RunResult& result, EvaluationSetup setup) {
  if (data == nullptr) return nullptr;
  setup.plan = &plan;
  setup.batches = data->steps_per_epoch();
  return std::make_unique<Evaluation>(options, result, std::move(setup));
}

std::optional<Diagnostic> evaluation_problem(const wire::RunResult& result) {
  for (size_t i = 0; i < result.eval_losses.size(); ++i) {
    const double loss = result.eval_losses[i];
    if (std::isfinite(loss)) continue;
    if (result.eval_counts_nothing)
      return Diagnostic{.code = Code::kCheckFailed,
                        .message =
                            "the data of --eval-data have no loss: none of their labels counts, since all are the "
                            "one that the loss leaves out",
                        .hint = "give --eval-data labels that count; the training has ended well"};
    return Diagnostic{.code = Code::kCheckFailed,
                      .message = text("the loss of the evaluation after step ", result.eval_steps[i], " is ",
                                      std::isnan(loss) ? "not a number (NaN)" : "infinite"),
                      .hint = "look at the data of --eval-data, or lower the learning rate"};
  }
  return std::nullopt;
}

double Evaluation::loss_of(const std::vector<std::vector<LossShare>>& of_ranks) {
  double divisor = 0;
  std::vector<LossShare> shares;
  for (const std::vector<LossShare>& of_rank : of_ranks) {
    if (of_rank.empty() || of_rank.front().first_sample != kDivisor)
      fail(Code::kPeerFailed, "a rank sent a malformed message of an evaluation", "run all ranks from one folder");
    divisor = std::max(divisor, of_rank.front().value);
    shares.insert(shares.end(), of_rank.begin() + 1, of_rank.end());
  }
  const double sum = total_loss(std::move(shares));
  if (setup_.plan->loss.normalizer == LossRow::Normalizer::kOne) return sum;
  result_.eval_counts_nothing = divisor == 0;
  return sum / divisor;
}

}  // namespace graphpipe::runtime
