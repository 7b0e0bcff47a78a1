#include "runtime/checkpoint/session.h"

#include <sys/random.h>

#include <array>
#include <cstdio>
#include <thread>
#include <utility>

#include "runtime/checkpoint/resume.h"
#include "runtime/error.h"
#include "runtime/launch/run_main.h"
#include "support/output_file.h"

namespace graphpipe::runtime {
namespace {

// Names the unfinished checkpoints of one run: ranks of an earlier run may still be shutting down.
std::string random_token() {
  std::array<unsigned char, 8> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    fail(Code::kEnvironment, "the system gives no random numbers", "check it");
  std::string token;
  for (const unsigned char byte : random) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

std::string key_of_report(size_t rank) { return text("written/", rank); }

void post_report(ControlPlane& control, size_t rank, const std::vector<std::byte>& report) {
  control.set(key_of_report(rank), {reinterpret_cast<const char*>(report.data()), report.size()});
}

// In this order: a rank that has left has posted all that it ever will.
CheckpointSetup::Posted posted_by(const ControlPlane& control, size_t rank) {
  CheckpointSetup::Posted posted{.report = std::nullopt, .left = control.find(key_of_left_rank(rank)).has_value()};
  if (const std::optional<std::string> report = control.find(key_of_report(rank))) {
    const auto bytes = std::as_bytes(std::span(*report));
    posted.report.emplace(bytes.begin(), bytes.end());
  }
  return posted;
}

void sleep_until(const std::function<bool()>& ready) {
  while (!ready()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

CheckpointSession::CheckpointSession(Rank rank) : rank_(std::move(rank)) {
  const wire::CheckpointOptions& options = rank_.options.checkpoint;
  if (options.folder.empty() && options.resume.empty()) return;
  setup_ = {.options = options,
            .ranks = rank_.ranks,
            .state = [this] { return shards(); },
            .digest = [this](const std::vector<Shard>& shards) { return digest_shards(rank_.plan, shards); }};
  if (rank_.rank == 0) setup_.record = record_of_run(rank_.plan, rank_.options, rank_.folder);
  if (!options.folder.empty()) {
    // Take the folder first: nobody else changes it from then on.
    if (rank_.rank == 0)
      setup_.folder = std::make_unique<CheckpointFolder>(options.folder, setup_.record.model,
                                                         is_same_file(options.folder, options.resume));
    setup_.token = rank_.share("checkpoint", rank_.rank == 0 ? random_token() : "");
  }
  if (!options.resume.empty()) resume(setup_.record);
}

void CheckpointSession::resume(const wire::CheckpointRecord& run) {
  std::string path;
  if (rank_.rank == 0)
    if (const std::optional<FoundCheckpoint> found = find_resume(rank_.options, run)) {
      path = found->path;
      resumed_data_ = found->record.data;
      setup_.record.losses = found->record.losses;
    }
  path = rank_.share("resume", path);
  if (path.empty()) return;
  first_step_ = restore(path, rank_.plan, rank_.states, rank_.device);
  if (first_step_ == rank_.options.data.steps && !rank_.options.output.save_gradients.empty())
    fail(Code::kUsage,
         text("--save-gradients: the checkpoint is of step ", first_step_, ", and no step is left to run"),
         "leave it out, or ask for more --steps");
}

void CheckpointSession::name_fed_data(const std::string& name) {
  if (name.empty()) return;
  setup_.record.data = fed_data_digest(name);
  if (resumed_data_.empty() || rank_.options.checkpoint.accept_changes || resumed_data_ == setup_.record.data) return;
  throw RunError(Diagnostic{
      .code = Code::kUsage,
      .origin = ModelText(rank_.options.checkpoint.resume),
      .message =
          text("the checkpoint's run trained on other data than those that the feeder calls ", quoted(ModelText(name))),
      .hint = "feed what it was written with, or say --resume-changed"});
}

std::vector<Shard> CheckpointSession::shards() const {
  std::vector<Shard> all;
  for (const StageState* state : rank_.states)
    for (Shard& shard : shards_of(rank_.plan, *state, rank_.device)) all.push_back(std::move(shard));
  return all;
}

StepObserver* CheckpointSession::observe(Gather* gather, Channels* channels) {
  if (rank_.options.checkpoint.folder.empty()) return nullptr;
  setup_.wait = [channels](const std::function<bool()>& ready) {
    if (channels != nullptr) channels->wait_for_own_work(ready);
    else sleep_until(ready);
  };
  setup_.collect = [gather](std::vector<std::byte> own) -> std::vector<std::vector<std::byte>> {
    if (gather == nullptr) return {std::move(own)};
    return gather->collect(std::move(own));
  };
  setup_.wait_for_rank_zero = [gather] {
    if (gather != nullptr) gather->broadcast({});
  };
  if (ControlPlane* control = rank_.control) {
    setup_.post = [control, rank = static_cast<size_t>(rank_.rank)](const std::vector<std::byte>& report) {
      post_report(*control, rank, report);
    };
    setup_.rank_zero_has_left = [control] { return control->rank_zero_has_left(); };
    setup_.posted_by = [control](size_t rank) { return posted_by(*control, rank); };
  }
  setup_.note = [has_launcher = rank_.options.launch.parent != 0](const Diagnostic& note) { tell(note, has_launcher); };
  checkpointer_ = std::make_unique<Checkpointer>(std::move(setup_));
  return checkpointer_.get();
}

}  // namespace graphpipe::runtime
