#pragma once
// What the result tells of each step, kept in a file: a run that starts again by itself tells of all its steps.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/training/record_file.h"
#include "runtime/training/step_observer.h"
#include "wire/result_lines.h"

namespace graphpipe::runtime {

/// Puts the file's steps up to `done` in front of the result, which then begins with the first of them; later ones run
/// again. A file that does not exist or is empty has none.
void take_kept_steps(const std::string& path, int64_t done, wire::RunResult& result);

/// Adds a row for each step to the file, a table of Comma-Separated Values. It stands behind all observers that add to
/// the result, which must outlive it. On ranks other than 0 it does nothing.
class KeptSteps : public StepObserver {
 public:
  KeptSteps(std::string path, const wire::RunResult& result, bool is_rank_zero);

  void before_step(int64_t step) override;
  Request after_step(const StepFacts& facts) override;

 private:
  std::string path_;
  const wire::RunResult& result_;
  bool is_rank_zero_;
  std::optional<RecordFile> file_;
};

}  // namespace graphpipe::runtime
