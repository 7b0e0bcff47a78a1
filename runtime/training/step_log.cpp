#include "runtime/training/step_log.h"

#include <chrono>

namespace graphpipe::runtime {
namespace {

double samples_per_second(const StepFacts& facts) {
  return facts.seconds > 0 ? static_cast<double>(facts.samples) / facts.seconds : 0;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

void StepLog::before_step(int64_t step) {
  if (!file_)
    file_.emplace(path_,
                  std::vector<std::string>{"step", "loss", "seconds", "samples_per_second", "gradient_norm", "anomaly",
                                           "loss_scale"},
                  step);
}

Request StepLog::after_step(const StepFacts& facts) {
  file_->append({facts.step + 1, facts.loss ? Cell(*facts.loss) : Cell(), facts.seconds, samples_per_second(facts),
                 facts.gradient_norm >= 0 ? Cell(facts.gradient_norm) : Cell(),
                 facts.skipped.empty() ? Cell() : Cell(facts.skipped),
                 facts.loss_scale > 0 ? Cell(facts.loss_scale) : Cell()});
  return {};
}

void TensorBoardLog::before_step(int64_t step) {
  if (file_) return;
  file_.emplace(make_event_file(folder_));
  file_->append(version_record(wall_time()));
  if (step > 0) file_->append(restart_record(wall_time(), step + 1));
}

Request TensorBoardLog::after_step(const StepFacts& facts) {
  std::vector<std::pair<std::string, double>> scalars;
  if (facts.loss) scalars.emplace_back("train/loss", *facts.loss);
  if (facts.gradient_norm >= 0) scalars.emplace_back("train/gradient_norm", facts.gradient_norm);
  scalars.emplace_back("train/seconds", facts.seconds);
  scalars.emplace_back("train/samples_per_second", samples_per_second(facts));
  if (facts.loss_scale > 0) scalars.emplace_back("train/loss_scale", facts.loss_scale);
  scalars.emplace_back("train/skipped", facts.skipped.empty() ? 0 : 1);
  file_->append(scalars_record(wall_time(), facts.step + 1, scalars));
  return {};
}

}  // namespace graphpipe::runtime
