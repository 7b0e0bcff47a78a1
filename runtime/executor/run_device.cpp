// What a rank does: check the folder, join the run, load the stages, train, report to rank 0.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>

#include "runtime/checkpoint/session.h"
#include "runtime/device/device.h"
#include "runtime/error.h"
#include "runtime/executor/check_copies.h"
#include "runtime/executor/check_loss.h"
#include "runtime/executor/check_weights.h"
#include "runtime/executor/evaluation_executors.h"
#include "runtime/executor/run_chosen.h"
#include "runtime/executor/step_executors.h"
#include "runtime/executor/trained_groups.h"
#include "runtime/io/folder.h"
#include "runtime/io/output_file.h"
#include "runtime/kernels/kernel_choice.h"
#include "runtime/launch/pin_to_cores.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/launch/run_main.h"
#include "runtime/main.h"
#include "runtime/server/open_served.h"
#include "runtime/server/served_program.h"
#include "runtime/training/evaluation.h"
#include "runtime/training/kept_steps.h"
#include "runtime/training/loop.h"
#include "runtime/training/next_drain.h"
#include "runtime/training/overflow.h"
#include "runtime/training/progress_lines.h"
#include "runtime/training/stage_metrics.h"
#include "runtime/training/watchers.h"
#include "runtime/transport/transports.h"
#include "support/check.h"
#include "wire/exit_codes.h"

namespace graphpipe::runtime {
namespace {

void report_early_end(const wire::RunOptions& options, int64_t done) {
  const Diagnostic note{.code = Code::kInterrupted,
                        .severity = Severity::kNote,
                        .message = text("the run was asked to end, after step ", done, " of ", options.data.steps),
                        .hint = options.checkpoint.folder.empty()
                                    ? "run it again"
                                    : "go on with --resume and the folder of --checkpoint"};
  std::fprintf(stderr, "%s\n", to_line(note).c_str());
}

class Rank {
 public:
  Rank(const DeviceProgram& program, const wire::RunOptions& options)
      : program_(program), plan_(*program.plan), options_(options) {}

  /// Returns whether it ran all steps; false if all ranks agreed to end early.
  bool run();
  /// What is wrong with the results of a run that has ended well, and has written them.
  const Diagnostics& found_at_end() const { return found_at_end_; }
  std::string where() const { return channels_ ? channels_->where() : "before the first action"; }
  /// Tells the others that this rank has failed.
  void leave(const std::string& problem) {
    if (channels_) channels_->leave(problem);
    if (control_) control_->leave(problem);
  }

 private:
  std::unique_ptr<Transport> open_transport(const Rendezvous& rendezvous, const std::vector<ChannelSpec>& channels);
  void pin(int32_t local_rank);
  int threads() const;
  void take_kernels(const std::string& folder);
  void load_stages(const ResolvedProgram& resolved, const std::string& folder);
  void train(StepExecutors& executor, const ResolvedProgram& resolved, Data& data, Data* eval_data);
  void run_to_end(const LoopSetup& loop, StepExecutors& executor, const Data& data);
  void note_bad_numbers();
  void tell_of_cause(const StepExecutors& executor) const;
  void open_checkpoints(const std::string& folder);
  void take_name_of_feed(Data& data);
  void gather_staleness(Gather& gather, const ServedUpdates* served);
  void gather_memory(Gather& gather, int64_t peak, const wire::GraphUse& graphs);
  void write_trace(Gather& gather, const Tracer& tracer);
  void compare_copies(Gather& gather);
  void save(Gather& gather);
  void tell_not_finite(Gather& gather, const std::string& own);
  using NamesOf = std::vector<NamedTensor> (*)(const StageState&, const Device&);
  std::vector<NamedTensor> of_all_stages(NamesOf names_of) const;

  const DeviceProgram& program_;
  const PlanTable& plan_;
  const wire::RunOptions& options_;
  std::unique_ptr<ControlPlane> control_;
  std::unique_ptr<Safetensors> weights_, own_weights_;
  std::unique_ptr<Device> device_;
  UpdateSettings settings_;
  std::optional<LossScale> loss_scale_;
  std::vector<StageState> states_;
  std::unique_ptr<Channels> channels_;
  KeptOutputs outputs_;
  /// A member, so that when the run fails, its writer thread does not delay the error report.
  std::optional<CheckpointSession> checkpoints_;
  wire::RunResult result_;
  std::optional<int64_t> ended_after_;  // steps, where it ended early
  Diagnostics found_at_end_;
};

bool Rank::run() {
  if (!options_.output.record_steps.empty() || !options_.output.follow_steps.empty())
    fail(Code::kUsage, "only the serial interpreter records and follows steps", "run build/device with --serial");
  const Rendezvous rendezvous = find_rendezvous(options_, program_.device, plan_.device_count);
  // Join first: from here on the others learn immediately if this rank fails.
  if (plan_.device_count > 1) control_ = join_run(rendezvous);
  if (options_.launch.pin) pin(rendezvous.local_rank);
  const std::string folder = find_folder(options_.launch.folder);
  check_manifest(folder, plan_.plan_digest,
                 program_.device == 0       ? FolderCheck::kAllFiles
                 : rendezvous.first_on_host ? FolderCheck::kWeights
                                            : FolderCheck::kSizeOfWeights);
  if (rendezvous.first_on_host) check_data(options_, folder);
  take_kernels(folder);
  const ResolvedProgram resolved = resolve(program_);
  // Open the device first: a GPU transport uses the device that is current.
  device_ = open_device(options_.launch.device, rendezvous.local_rank);
  device_->plan_arena(program_.arena_bytes);
  channels_ = std::make_unique<Channels>(plan_, program_.device, resolved.channels,
                                         open_transport(rendezvous, resolved.channels), stall_seconds(plan_, options_),
                                         device_->copies());
  if (program_.device == 0) check_outputs(plan_, options_, folder);
  load_stages(resolved, folder);
  open_checkpoints(folder);
  const std::unique_ptr<Data> data =
      open_data(plan_, options_, folder, {.rank = program_.device, .ranks = plan_.device_count, .reads_ahead = true});
  take_name_of_feed(*data);
  const std::unique_ptr<Data> eval_data = open_eval_data(plan_, options_, folder);
  StepExecutors executor(program_, resolved, *channels_, *data, *device_, states_, seed_of(plan_, options_), settings_);
  if (control_) {
    control_->barrier("ready", plan_.device_count);
    control_->start_is_over();
  }
  if (!options_.output.save_outputs.empty()) executor.keep_outputs(outputs_);
  if (!options_.launch.no_graphs) executor.record_calls();
  executor.overlap_reductions(wire::overlap_named(options_.launch.overlap));
  device_->reset_peak();
  std::optional<Tracer> tracer;
  if (!options_.output.trace.empty())
    executor.trace(tracer.emplace(max_events(options_.data.steps, program_.actions.size())));
  train(executor, resolved, *data, eval_data.get());
  if (ended_after_ && program_.device == 0) report_early_end(options_, *ended_after_);
  channels_->wait_without_limit();
  if (tracer) write_trace(executor.gather(), *tracer);
  if (result_.complete) save(executor.gather());
  executor.gather().broadcast({});  // no rank exits successfully before rank 0 has everything
  leave("");
  note_bad_numbers();
  result_.problems = found_at_end_;
  if (program_.device == 0) print_result(options_, result_);
  return result_.complete;
}

// Rank 0 has the losses.
void Rank::note_bad_numbers() {
  if (const auto problem = evaluation_problem(result_)) found_at_end_.push_back(*problem);
  if (const auto problem = overflow_problem(result_); problem && !options_.watch.skips())
    found_at_end_.push_back(*problem);
}

std::unique_ptr<Transport> Rank::open_transport(const Rendezvous& rendezvous,
                                                const std::vector<ChannelSpec>& channels) {
  if (plan_.device_count == 1) return nullptr;
  const unsigned cores = std::thread::hardware_concurrency();
  const TransportSetup setup{.rank = program_.device,
                             .world_size = plan_.device_count,
                             .store = control_.get(),
                             .control = control_.get(),
                             .channels = remote_channels(channels),
                             .may_spin = static_cast<unsigned>(threads() * plan_.device_count) <= cores,
                             .address = rendezvous.inherited.empty() ? rendezvous.address : "127.0.0.1",
                             .compute_stream = device_->compute_stream()};
  std::string name = options_.launch.transport;
  const bool is_fed = !options_.data.feed.empty();
  if (is_fed && !ranks_share_memory(setup))
    fail(Code::kUsage, "--feed: the ranks are on several hosts, and a feeder shares its memory with one",
         "run all ranks on the feeder's host, or write the data as files for --data");
  if (name == "auto") return open_auto(setup);
  if (name == "gloo") name = "tcp";  // its former name
  if (name == "nccl" && device_->is_host())
    fail(Code::kUsage, "NCCL passes messages between GPUs, and this run computes on the CPU",
         "add --device cuda, or take --transport shm or tcp");
  std::string known;
  for (const TransportEntry& entry : transports()) {
    known += std::string(known.empty() ? "" : ", ") + entry.name;
    if (name != entry.name) continue;
    std::unique_ptr<Transport> transport = entry.open(setup);
    if (transport) return transport;
    fail(Code::kEnvironment, "this build has no transport " + name,
         "build it where its library is found, or take auto");
  }
  fail(Code::kUsage, "there is no transport " + quoted(ModelText(name)), "choose auto or one of " + known);
}

void Rank::pin(int32_t local_rank) {
  if (!pin_to_cores(local_rank, local_rank + 1, threads()))
    fail(Code::kUsage,
         text("--pin: rank ", program_.device, " of ", threads(), " threads finds no cores of its own here"),
         "leave it out, or run fewer ranks or threads on this host");
}

int Rank::threads() const { return options_.launch.threads > 0 ? options_.launch.threads : std::max(1, plan_.threads); }

// Use the table of rank 0's folder: another host may have measured a different one, and would compute different bits.
void Rank::take_kernels(const std::string& folder) {
  constexpr const char* kKey = "kernels";
  std::string table = program_.device == 0 ? read_measured_kernels(folder) : std::string();
  if (control_ && program_.device == 0) control_->set(kKey, table);
  if (control_ && program_.device != 0) table = control_->get(kKey);
  take_measured_kernels(table);
}

void Rank::load_stages(const ResolvedProgram& resolved, const std::string& folder) {
  weights_ = std::make_unique<Safetensors>(Safetensors::of_folder(folder));
  if (!options_.data.weights.empty()) own_weights_ = std::make_unique<Safetensors>(options_.data.weights);
  settings_ = update_settings(plan_.optimizer, options_.optimizer);
  loss_scale_ = first_loss_scale(plan_, options_.optimizer);
  for (const Instance& instance : resolved.instances) {
    states_.push_back(
        load_stage(*instance.entry, instance.replica, {*weights_, own_weights_.get()}, settings_, *device_));
    states_.back().loss_scale = loss_scale_ ? &*loss_scale_ : nullptr;
    states_.back().rate = replica_rate(plan_, settings_, instance.entry->stage);
    states_.back().keeps_gradients = !options_.output.save_gradients.empty();
    states_.back().shows_used_gradients = states_.back().keeps_gradients;
    divide_optimizer_state(plan_, states_.back());
  }
  check_trained_groups(options_.optimizer, states_, program_, control_.get());
}

void Rank::open_checkpoints(const std::string& folder) {
  std::vector<StageState*> states;
  for (StageState& state : states_) states.push_back(&state);
  const auto share = [this](const std::string& key, const std::string& value) {
    if (control_ && program_.device == 0) control_->set(key, value);
    return control_ && program_.device != 0 ? control_->get(key) : value;
  };
  checkpoints_.emplace(CheckpointSession::Rank{.plan = plan_,
                                               .options = options_,
                                               .folder = folder,
                                               .rank = program_.device,
                                               .ranks = plan_.device_count,
                                               .device = *device_,
                                               .states = std::move(states),
                                               .share = share,
                                               .control = control_.get()});
  // Workers of a parameter server update nothing.
  const bool updates = plan_.server < 0 || plan_.server == program_.device;
  if (updates && checkpoints_->first_step() < options_.data.steps)
    for (StageState& state : states_) begin_optimizer(state);
}

// The feeder announces its name with the first batch. All ranks wait for it here, before any of them waits for
// another's compute.
void Rank::take_name_of_feed(Data& data) {
  if (options_.data.feed.empty() || checkpoints_->first_step() >= options_.data.steps) return;
  data.samples_of(checkpoints_->first_step());
  if (program_.device == 0) checkpoints_->name_fed_data(data.name());
}

void Rank::train(StepExecutors& executor, const ResolvedProgram& resolved, Data& data, Data* eval_data) {
  ProgressLines lines(options_, result_, program_.device == 0);
  const Watchers watchers(options_, program_.device == 0, checkpoints_->earlier_losses());
  StageMeter meter(resolved.instances);
  StageMetrics metrics(options_.watch.metrics, program_.device, meter, *channels_, *device_);
  StepGuard guard(options_.watch.max_loss_factor, checkpoints_->earlier_losses());
  LoopSetup loop{.observers = {&lines},
                 .gather = &executor.gather(),
                 .rank = program_.device,
                 .run_steps = [&](int64_t first, int64_t last) { return executor.run_steps(first, last); },
                 .next_drain = [&](int64_t step) { return next_drain(plan_, options_, step); },
                 .has_data = [&](int64_t step) { return data.has_step(step); }};
  if (!options_.watch.metrics.empty()) {
    executor.meter(meter);
    loop.observers.push_back(&metrics);
  }
  watchers.add_to(loop.observers);
  if (options_.watch.skips()) executor.skip_anomalies(guard);
  if (loss_scale_) executor.scale_loss(*loss_scale_);
  const std::unique_ptr<ServedUpdates> served =
      open_served(plan_, program_.device, *channels_, *device_, states_, options_.optimizer);
  if (served) executor.serve(*served);
  std::optional<EvaluationExecutors> forwards;
  if (eval_data != nullptr)
    forwards.emplace(program_, *channels_, *eval_data, *device_, states_, seed_of(plan_, options_));
  const bool keeps_outputs = forwards && !options_.output.save_eval_outputs.empty();
  if (keeps_outputs) forwards->keep_outputs(outputs_);
  const std::unique_ptr<Evaluation> evaluation =
      evaluation_of(plan_, eval_data, options_, result_,
                    {.gather = &executor.gather(),
                     .rank = program_.device,
                     .wait = [&](const std::function<bool()>& ready) { channels_->wait_for_own_work(ready); },
                     .begin = [&] { executor.finish(); },
                     .end = [&] { forwards->finish(); },
                     .run_batch = [&](int64_t batch) { return forwards->run_batch(batch); },
                     .say = [&](std::string_view line) { lines.say(line); },
                     .outputs = keeps_outputs ? &outputs_ : nullptr});
  if (evaluation) loop.observers.push_back(evaluation.get());
  if (StepObserver* checkpointer = checkpoints_->observe(&executor.gather(), channels_.get()))
    loop.observers.push_back(checkpointer);
  KeptSteps kept(options_.launch.kept_steps, result_, program_.device == 0);
  if (!options_.launch.kept_steps.empty()) loop.observers.push_back(&kept);
  run_to_end(loop, executor, data);
  gather_staleness(executor.gather(), served.get());
  gather_memory(executor.gather(), std::max(device_->peak_bytes(), metrics.peak_bytes()), executor.graph_use());
  result_.plan = plan_.plan_digest;
  result_.transport = channels_->transport_name();
  result_.devices = plan_.device_count;
}

void Rank::run_to_end(const LoopSetup& loop, StepExecutors& executor, const Data& data) {
  result_.first_step = checkpoints_->first_step() + 1;
  if (program_.device == 0) take_kept_steps(options_.launch.kept_steps, checkpoints_->first_step(), result_);
  try {
    const int64_t done = run_steps(loop, checkpoints_->first_step(), options_.data.steps);
    result_.complete = done == options_.data.steps;
    data.check_end(done);
    if (!result_.complete) ended_after_ = done;
  } catch (const RunError& error) {
    if (error.diagnostic().code == Code::kPeerFailed && tells_of_loss(error.what())) tell_of_cause(executor);
    throw;
  }
  executor.finish();
}

void Rank::gather_memory(Gather& gather, int64_t peak, const wire::GraphUse& graphs) {
  for (const std::vector<std::byte>& bytes : gather.collect(to_bytes(std::vector<int64_t>{peak})))
    result_.peak_bytes.push_back(from_bytes<int64_t>(bytes).at(0));
  if (!device_->is_host() && !options_.launch.no_graphs)
    for (const std::vector<std::byte>& bytes : gather.collect(to_bytes(std::vector<wire::GraphUse>{graphs})))
      result_.graphs.push_back(from_bytes<wire::GraphUse>(bytes).at(0));
  if (!device_->is_host() || options_.launch.no_arena) return;
  const ArenaNumbers own = device_->arena();
  const wire::ArenaUse use{.bytes = own.bytes,
                           .planned_bytes = own.planned_bytes,
                           .steps = own.steps,
                           .fallback_steps = own.fallback_steps,
                           .fallbacks = own.fallbacks,
                           .page_faults = own.page_faults};
  for (const std::vector<std::byte>& bytes : gather.collect(to_bytes(std::vector<wire::ArenaUse>{use})))
    result_.arenas.push_back(from_bytes<wire::ArenaUse>(bytes).at(0));
}

void Rank::gather_staleness(Gather& gather, const ServedUpdates* served) {
  if (served == nullptr) return;
  std::vector<wire::Staleness> own;
  if (const std::optional<wire::Staleness> measured = served->staleness()) own.push_back(*measured);
  for (const std::vector<std::byte>& bytes : gather.collect(to_bytes(own)))
    for (const wire::Staleness& measured : from_bytes<wire::Staleness>(bytes)) result_.staleness = measured;
}

// The rank with the loss sees only what it has received; the cause may lie on this rank.
void Rank::tell_of_cause(const StepExecutors& executor) const {
  const std::optional<std::string> found = executor.find_not_finite();
  if (!found) return;
  const Diagnostic note{.code = Code::kCheckFailed,
                        .severity = Severity::kNote,
                        .message = "before the loss that is not finite: " + *found,
                        .hint = "look at this operator's inputs"};
  std::fprintf(stderr, "%s\n", to_line(note).c_str());
}

void Rank::write_trace(Gather& gather, const Tracer& tracer) {
  const std::optional<CollectedTrace> trace = tracer.collect(gather, plan_);
  if (!trace) return;
  if (trace->dropped > 0)
    std::fprintf(stderr, "the trace lacks %lld events: a rank keeps its first %zu\n",
                 static_cast<long long>(trace->dropped), kMaxEvents);
  OutputFile out(options_.output.trace);
  out.write(trace->text);
  out.keep();
}

std::vector<NamedTensor> Rank::of_all_stages(NamesOf names_of) const {
  std::vector<NamedTensor> out;
  for (const StageState& state : states_) {
    if (state.replica != 0) continue;
    const std::vector<NamedTensor> of_stage = names_of(state, *device_);
    out.insert(out.end(), of_stage.begin(), of_stage.end());
  }
  return out;
}

void Rank::compare_copies(Gather& gather) {
  std::vector<std::byte> digests;
  for (const StageState& state : states_) {
    const std::vector<std::byte> of_state = digest_copies(plan_, state, *device_);
    digests.insert(digests.end(), of_state.begin(), of_state.end());
  }
  check_copies(gather.collect(std::move(digests)));
}

void Rank::save(Gather& gather) {
  if (!options_.output.save.empty() || !options_.output.save_gradients.empty()) compare_copies(gather);
  const std::pair<const std::string*, NamesOf> files[] = {{&options_.output.save, named_parameters},
                                                          {&options_.output.save_average, named_averages},
                                                          {&options_.output.save_gradients, named_gradients}};
  std::optional<std::string> not_finite;  // the last update may have done it, whose loss was still finite
  for (const auto& [path, names_of] : files) {
    if (path->empty()) continue;
    const std::vector<NamedTensor> own = of_all_stages(names_of);
    const bool are_weights = path != &options_.output.save_gradients;
    if (are_weights && !not_finite) not_finite = not_finite_tensor(own);
    const std::vector<NamedTensor> all = gather.collect_tensors(own);
    if (program_.device == 0) write_safetensors(*path, all);
  }
  if (!options_.output.save_outputs.empty()) {
    const std::vector<NamedTensor> all = gather.collect_tensors(outputs_.parts());
    if (program_.device == 0) write_outputs(options_.output.save_outputs, all);
  }
  tell_not_finite(gather, not_finite.value_or(""));
}

// Rank 0 ends for all with the first rank's words: another that ended otherwise would have it ended before its report.
void Rank::tell_not_finite(Gather& gather, const std::string& own) {
  for (const std::vector<std::byte>& bytes : gather.collect(to_bytes(std::vector<char>(own.begin(), own.end())))) {
    const std::vector<char> words = from_bytes<char>(bytes);
    if (words.empty()) continue;
    found_at_end_.push_back(
        weights_problem("the saved weights are not finite", std::string(words.begin(), words.end())));
    return;
  }
}

}  // namespace

void run_chosen(const PlanTable& plan, const ChooseProgram& choose, int argc, char** argv) {
  std::optional<ServedProgram> served;
  std::unique_ptr<Rank> rank;
  std::string problem;
  bool complete = true;
  bool has_launcher = false;
  Diagnostics found_at_end;
  const auto body = [&](const wire::RunOptions& options) {
    has_launcher = options.launch.parent != 0;
    const DeviceProgram& program = choose(options);
    if (options.optimizer.staleness) served.emplace(program, find_rank(options).value_or(program.device));
    rank = std::make_unique<Rank>(served ? served->program() : program, options);
    try {
      complete = rank->run();
    } catch (const SharedRunError& error) {
      problem = text(kLeftToRankZero, first_line(error.what()));
      throw;
    } catch (const std::exception& error) {
      problem = first_line(error.what());
      throw;
    }
    found_at_end = rank->found_at_end();
    rank.reset();
  };
  const int code =
      run_main(plan, argc, argv, body, [&] { return rank ? rank->where() : std::string("before the first action"); });
  // Leave after this rank's own problem is told: what the others tell of it comes later.
  if (rank && !problem.empty()) rank->leave(problem);
  // Threads of a transport may wait forever for a peer that is gone; a failed run has nothing to clean up.
  end_process(code == wire::kExitOk ? code_of_end(complete, found_at_end, has_launcher) : code);
}

}  // namespace graphpipe::runtime
