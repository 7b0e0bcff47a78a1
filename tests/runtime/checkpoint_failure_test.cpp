// A checkpoint that all ranks have written is kept, whatever becomes of the next one: two ranks that never hear of each
// other but by what they post, as where steps take less time than messages.

#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "runtime/checkpoint/checkpointer.h"
#include "tests/runtime/run_programs.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

namespace fs = std::filesystem;

constexpr const char* kToken = "token";

/// A rank of two. Its state is one tensor, which it cannot write at step `fails_at`.
class CheckpointedRank {
 public:
  CheckpointedRank(int rank, const std::string& folder, int64_t fails_at, const CheckpointedRank* other) {
    CheckpointSetup setup{.record = {.model = std::string(64, '0'),
                                     .plan = std::string(64, '0'),
                                     .optimizer = "sgd",
                                     .data = std::string(64, '0')},
                          .token = kToken,
                          .ranks = 2};
    setup.options.folder = folder;
    setup.options.every_steps = 1;
    if (rank == 0) setup.folder = std::make_unique<CheckpointFolder>(folder, std::string(64, '0'), false);
    setup.state = [this, rank, fails_at] {
      const std::string name = "stage" + std::to_string(rank) + ".optimizer.safetensors";
      return std::vector<Shard>{
          {.file = step_ == fails_at ? "missing/" + name : name, .tensors = {{"sum/w", at::full({4}, step_)}}}};
    };
    setup.digest = [](const std::vector<Shard>&) { return std::vector<std::byte>(); };
    setup.wait = [](const std::function<bool()>& ready) {
      while (!ready()) std::this_thread::yield();
    };
    setup.post = [this](const std::vector<std::byte>& report) { posted_ = report; };
    setup.posted_by = [other](size_t) { return CheckpointSetup::Posted{.report = other->posted_, .left = true}; };
    setup.rank_zero_has_left = [] { return false; };
    setup.note = [](const graphpipe::Diagnostic&) {};
    checkpointer_ = std::make_unique<Checkpointer>(std::move(setup));
  }

  /// False where the rank has failed.
  bool step() {
    try {
      ++step_;
      checkpointer_->after_step({.step = step_ - 1});
      return true;
    } catch (const RunError&) {
      return false;
    }
  }
  void fail() { checkpointer_->at_failure(); }

 private:
  int64_t step_ = 0;
  std::optional<std::vector<std::byte>> posted_;
  std::unique_ptr<Checkpointer> checkpointer_;
};

std::vector<int64_t> kept_where(int64_t first_fails_at, int64_t second_fails_at) {
  const std::string folder = make_folder(false, 1) + ".checkpoints";
  CheckpointedRank second(1, folder, second_fails_at, nullptr);
  CheckpointedRank first(0, folder, first_fails_at, &second);
  for (CheckpointedRank* rank : {&second, &first})
    for (int step = 0; step < 3 && rank->step();) ++step;
  second.fail();
  first.fail();
  const std::vector<int64_t> steps = checkpoint_steps(folder);
  for (const int64_t step : steps) read_checkpoint_record(folder + "/step-" + std::to_string(step));
  fs::remove_all(folder);
  return steps;
}

}  // namespace

TEST_CASE("checkpoints that all ranks have written are kept where the next cannot be written") {
  constexpr int64_t kNever = 0;
  CHECK(kept_where(kNever, kNever) == std::vector<int64_t>{1, 2, 3});
  CHECK(kept_where(kNever, 2) == std::vector<int64_t>{1});
  CHECK(kept_where(2, kNever) == std::vector<int64_t>{1});
  CHECK(kept_where(3, 3) == std::vector<int64_t>{1, 2});
}
