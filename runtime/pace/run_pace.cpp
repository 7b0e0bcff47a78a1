#include "runtime/pace/run_pace.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "runtime/error.h"
#include "runtime/executor/executor.h"
#include "runtime/io/output_file.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/launch/run_main.h"
#include "runtime/pace/pacer.h"
#include "runtime/transport/transports.h"
#include "wire/pace_report.h"

namespace graphpipe::runtime {
namespace {

constexpr double kPerSecond = 1e9;

wire::PacePlan read_pace_plan(const std::string& folder) {
  const std::string path = folder + "/" + wire::kPacePlanFile;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  std::optional<wire::PacePlan> plan = file ? wire::parse_pace_plan(text.str()) : std::nullopt;
  if (!plan)
    fail(Code::kMalformedFile, "no plan of a paced run lies in " + quoted(ModelText(folder)),
         "start it with `graphpipe run PLAN --pace`");
  return std::move(*plan);
}

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Sample counts of a plan without data.
class NoData final : public Data {
 public:
  explicit NoData(int64_t batch) : batch_(batch) {}
  at::Tensor item(const DataRow&, int64_t, wire::SampleRange) override { return {}; }
  int64_t samples_of(int64_t) override { return batch_; }
  int64_t steps_per_epoch() const override { return 1; }
  int64_t rest() const override { return batch_; }

 private:
  int64_t batch_;
};

/// One rank of a paced run.
class PacedRank {
 public:
  PacedRank(const wire::PacePlan& plan, const wire::RunOptions& options)
      : options_(options), program_(plan, options.launch.rank), rank_(options.launch.rank) {
    const auto ranks = static_cast<int32_t>(plan.programs.size());
    if (ranks > 1) control_ = join_run(find_rendezvous(options, rank_, ranks));
    resolved_ = resolve(program_.program());
    clock_ = std::make_unique<LinkClock>(control_.get(), rank_, ranks, plan.links);
    channels_ = std::make_unique<Channels>(program_.table(), rank_, resolved_.channels,
                                           ranks > 1 ? open_transport(ranks) : nullptr,
                                           stall_seconds(program_.table(), options));
    for (const Instance& instance : resolved_.instances) {
      StageState& state = states_.emplace_back(
          StageState{.entry = instance.entry, .replica = instance.replica, .optimizer = Optimizer("sgd", {})});
      for (size_t i = 0; i < instance.entry->params.size(); ++i) state.trainable.push_back(i);
      state.weights.resize(instance.entry->params.size());
    }
  }

  void run();

 private:
  /// What a rank reports about a step.
  struct Told {
    double start = 0, end = 0, processor = 0, late = 0, pauses = 0, sent = 0;
  };

  std::unique_ptr<Transport> open_transport(int32_t ranks);
  Told run_step(Executor& executor, Pacer& pacer, int64_t step);
  void report(Gather& gather, const std::vector<Told>& steps);
  void write_trace(Gather& gather, const Tracer& tracer);

  const wire::RunOptions& options_;
  PacedProgram program_;
  int32_t rank_;
  std::unique_ptr<ControlPlane> control_;
  ResolvedProgram resolved_;
  std::unique_ptr<LinkClock> clock_;
  std::unique_ptr<Channels> channels_;
  std::vector<StageState> states_;
};

std::unique_ptr<Transport> PacedRank::open_transport(int32_t ranks) {
  const TransportSetup setup{.rank = rank_,
                             .world_size = ranks,
                             .store = control_.get(),
                             .control = control_.get(),
                             .channels = remote_channels(resolved_.channels)};
  const std::string name = options_.launch.transport == "auto" ? "shm" : options_.launch.transport;
  for (const TransportEntry& entry : transports()) {
    if (name != entry.name || (name != "shm" && name != "tcp")) continue;
    return pace_transport(entry.open(setup), program_.paces(setup.channels), *clock_);
  }
  fail(Code::kUsage, "a paced run sends its messages by shm or tcp, not by " + quoted(ModelText(name)),
       "leave --transport out");
}

// All ranks start when they hear from rank 0, which has heard from all.
PacedRank::Told PacedRank::run_step(Executor& executor, Pacer& pacer, int64_t step) {
  executor.gather().collect({});
  Told told;
  const double processor = processor_seconds();
  told.start = static_cast<double>(pace_now()) / kPerSecond;
  executor.gather().broadcast({});
  pacer.take_late();
  channels_->take_sent_bytes();
  pacer.sleep(program_.start_nanoseconds(), [&] { executor.meanwhile(); });
  executor.run_step(step);
  told.end = static_cast<double>(pace_now()) / kPerSecond;
  executor.finish();
  told.processor = processor_seconds() - processor;
  const Pacer::Late late = pacer.take_late();
  told.late = static_cast<double>(late.nanoseconds) / kPerSecond;
  told.pauses = static_cast<double>(late.pauses);
  for (const auto& [place, bytes] : channels_->take_sent_bytes()) told.sent += static_cast<double>(bytes);
  return told;
}

void PacedRank::run() {
  NoData data(program_.table().batch);
  const std::unique_ptr<Device> device = open_cpu();
  const UpdateSettings settings;
  Executor executor(program_.table(), resolved_, *channels_, data, *device, states_, 0, settings);
  Pacer pacer(program_, *channels_);
  executor.pace(pacer);
  if (control_) {
    control_->barrier("ready", program_.table().device_count);
    control_->start_is_over();
  }
  std::optional<Tracer> tracer;
  if (!options_.output.trace.empty())
    executor.trace(tracer.emplace(max_events(options_.data.steps + 1, resolved_.actions.size())));
  std::vector<Told> steps;
  for (int64_t step = 0; step <= options_.data.steps; ++step) steps.push_back(run_step(executor, pacer, step));
  steps.erase(steps.begin());  // the first step touches its memory for the first time
  report(executor.gather(), steps);
  if (tracer) write_trace(executor.gather(), *tracer);
  executor.gather().broadcast({});  // no rank ends before rank 0 has everything
  channels_->leave("");
  if (control_) control_->leave("");
}

void PacedRank::report(Gather& gather, const std::vector<Told>& steps) {
  const std::vector<std::vector<std::byte>> all = gather.collect(to_bytes(steps));
  if (rank_ != 0) return;
  wire::PaceReport report{.steps = std::vector<double>(steps.size()), .transport = channels_->transport_name()};
  for (const std::vector<std::byte>& bytes : all) {
    const std::vector<Told> of_rank = from_bytes<Told>(bytes);
    for (size_t i = 0; i < steps.size(); ++i) {
      report.steps[i] = std::max(report.steps[i], of_rank[i].end - steps[i].start);
      report.late += of_rank[i].late;
      report.pauses += of_rank[i].pauses;
      report.processor += of_rank[i].processor;
      report.sent += of_rank[i].sent;
    }
  }
  const auto count = static_cast<double>(steps.size());
  for (double* of_steps : {&report.late, &report.pauses, &report.processor, &report.sent}) *of_steps /= count;
  report.late /= static_cast<double>(all.size());
  // A pause may end early.
  report.late = std::max(0.0, report.late);
  std::fputs(wire::print_pace_report(report).c_str(), stdout);
}

void PacedRank::write_trace(Gather& gather, const Tracer& tracer) {
  const std::optional<CollectedTrace> trace = tracer.collect(gather, program_.table());
  if (!trace) return;
  OutputFile out(options_.output.trace);
  out.write(trace->text);
  out.keep();
}

void pace(const wire::RunOptions& options) {
  const wire::PacePlan plan = read_pace_plan(options.launch.folder);
  if (options.launch.rank < 0 || static_cast<size_t>(options.launch.rank) >= plan.programs.size())
    fail(Code::kUsage, "the rank is none of the plan", "start it with `graphpipe run PLAN --pace`");
  prctl(PR_SET_TIMERSLACK, 1);  // otherwise pauses end about 50 us late
  PacedRank(plan, options).run();
}

}  // namespace

int run_pace(int argc, char** argv) {
  return run_main(PlanTable{}, argc, argv, pace, [] { return std::string("in the paced run"); });
}

}  // namespace graphpipe::runtime
