#include "driver/pipeline/pace_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/simulate/links.h"
#include "scheduler/simulate/resolve.h"
#include "wire/all_reduce.h"

namespace graphpipe::driver {
namespace {

using ir::StageId;

// What a paced run costs this machine, roughly: seconds for an action (waking up, message headers) and for a byte (two
// copies, an addition). Then the share of a step that the costs of a rank's actions may take, and that all costs may
// take of the cores.
constexpr double kSecondsOfAction = 200e-6, kSecondsOfByte = 1.5e-9;
constexpr double kLateness = 0.02, kLoad = 0.1;
// A step is made longer than this only if it has many actions; if it has many bytes, fewer of them are sent instead.
constexpr double kLongestStep = 5;

int64_t rounded(double value) { return std::max<int64_t>(0, std::llround(value)); }

// 1, 2, 5, 10, 20, ...: at least `value`.
double round_scale(double value) {
  for (double power = 1;; power *= 10)
    for (const double digit : {1.0, 2.0, 5.0})
      if (digit * power >= value) return digit * power;
}

using Way = std::pair<int32_t, int32_t>;  // from rank, to rank

// The pairs of ranks between which tensors travel, ascending: for the messages of the schedule, the rings of replicas,
// and the sums that stages with copies of a weight send each other, as in runtime/executor/plan_channels.h.
class UsedWays {
 public:
  explicit UsedWays(const wire::PacePlan& plan) : plan_(plan), shares_(plan.stages.size()) {
    for (const wire::PacePlace& place : plan.places) rank_of_[{place.stage, place.replica}] = place.rank;
    for (const wire::PaceGroup& group : plan.groups)
      if (group.bytes > 0)
        for (const int32_t stage : group.stages) shares_[static_cast<size_t>(stage)] = true;
  }

  std::set<Way> find() {
    for (size_t rank = 0; rank < plan_.programs.size(); ++rank)
      for (const wire::PaceAction& action : plan_.programs[rank]) add_message(static_cast<int32_t>(rank), action.row);
    for (size_t stage = 0; stage < plan_.stages.size(); ++stage)
      if (plan_.stages[stage].gradient_bytes > 0 || shares_[stage]) add_ring(static_cast<int32_t>(stage));
    for (const wire::PaceGroup& group : plan_.groups)
      for (const int32_t from : group.stages)
        for (const int32_t to : group.stages)
          if (group.bytes > 0 && from != to) add_copies(from, to);
    return std::move(ways_);
  }

 private:
  int32_t replicas(int32_t stage) const { return plan_.stages[static_cast<size_t>(stage)].replicas; }
  int32_t rank(int32_t stage, int32_t replica) const { return rank_of_.at({stage, replica}); }
  void add(int32_t from, int32_t to) {
    if (from != to) ways_.emplace(from, to);
  }

  void add_message(int32_t from, const wire::ActionRow& row) {
    if (!wire::is_send(row.op)) return;
    const wire::PaceEdge& edge = plan_.edges[static_cast<size_t>(row.edge)];
    add(from, rank(row.op == wire::ActionOp::kSendForward ? edge.to : edge.from, row.peer_replica));
  }
  void add_ring(int32_t stage) {
    std::vector<int32_t> ranks;
    for (int32_t replica = 0; replica < replicas(stage); ++replica) ranks.push_back(rank(stage, replica));
    const std::vector<int32_t> ring = wire::ring_order(ranks);
    for (size_t i = 0; i < ring.size(); ++i) add(rank(stage, ring[i]), rank(stage, ring[(i + 1) % ring.size()]));
  }
  // A replica gets the sum from the replica with the same number in the other stage, modulo the number of replicas
  // there.
  void add_copies(int32_t from, int32_t to) {
    for (int32_t replica = 0; replica < replicas(to); ++replica)
      add(rank(from, replica % replicas(from)), rank(to, replica));
  }

  const wire::PacePlan& plan_;
  std::map<std::pair<int32_t, int32_t>, int32_t> rank_of_;  // by stage, replica
  std::vector<bool> shares_;                                // by stage: has a weight with copies elsewhere
  std::set<Way> ways_;
};

std::set<Way> used_ways(const wire::PacePlan& plan) { return UsedWays(plan).find(); }

class PacePlanMaker {
 public:
  explicit PacePlanMaker(const Pipeline& pipeline)
      : pipeline_(pipeline), cluster_(pipeline.plan.cluster), schedule_(pipeline.built.schedule) {}

  Result<wire::PacePlan> make() {
    const scheduler::StageGraph stages =
        is_forward_only(schedule_) ? scheduler::without_backward(pipeline_.stages) : pipeline_.stages;
    GP_TRY(const scheduler::ResolvedSchedule resolved,
           scheduler::resolve(stages, cluster_, schedule_, scheduler::kTicksPerSecond));
    plan_.digest = plan_digest(pipeline_.plan);
    plan_.batch = stages.batch.count;
    plan_.start_nanoseconds = rounded(cluster_.runtime.step.count * scheduler::kTicksPerSecond);
    for (size_t rank = 0; rank < schedule_.programs.size(); ++rank)
      rank_of_[schedule_.programs[rank].device] = static_cast<int32_t>(rank);
    add_stages(stages);
    for (const ir::StageEdge& edge : stages.edges) add_edge(stages, edge);
    add_programs(resolved);
    add_ways();
    return std::move(plan_);
  }

 private:
  void add_stages(const ir::StageGraph& stages) {
    std::vector<int64_t> own;
    for (const ir::Stage& stage : stages.stages) own.push_back(stage.trainable_weight_bytes.count);
    for (const ir::SharedWeights& shared : stages.shared) {
      if (shared.gradient_bytes.count == 0) continue;
      wire::PaceGroup& group = plan_.groups.emplace_back(wire::PaceGroup{.bytes = shared.gradient_bytes.count});
      for (const StageId stage : shared.stages) {
        group.stages.push_back(static_cast<int32_t>(stage.index()));
        own[stage.index()] -= shared.gradient_bytes.count;
      }
    }
    for (const StageId id : stages.stage_ids()) {
      const ir::StageChoice& choice = stages.stages[id].choice;
      plan_.stages.push_back({.micro_batch = choice.micro_batch.count,
                              .replicas = static_cast<int32_t>(choice.devices.size()),
                              .mode = choice.mode,
                              .slots = id.index() < schedule_.slots.size() ? schedule_.slots[id] : 1,
                              .recompute = choice.recompute,
                              .gradient_bytes = std::max<int64_t>(0, own[id.index()]),
                              .add_byte = ir::add_seconds_per_byte(cluster_, choice.devices)});
      for (size_t replica = 0; replica < choice.devices.size(); ++replica)
        plan_.places.push_back(
            {static_cast<int32_t>(id.index()), static_cast<int32_t>(replica), rank_of_.at(choice.devices[replica])});
    }
  }

  // Tensors without an axis of samples are sent whole: for a last, smaller micro-batch they count as for a full one.
  void add_edge(const ir::StageGraph& stages, const ir::StageEdge& edge) {
    const Samples samples = stages.stages[edge.from].choice.micro_batch;
    const bool of_sample = edge.batch == ir::BatchKind::kAxis;
    const double bytes = edge.bytes.at(samples);
    plan_.edges.push_back({.from = static_cast<int32_t>(edge.from.index()),
                           .to = static_cast<int32_t>(edge.to.index()),
                           .bytes = rounded(of_sample ? bytes / static_cast<double>(samples.count) : bytes),
                           .of_sample = of_sample,
                           .gradients = edge.carries_gradient() ? edge.gradient_count : 0});
  }

  void add_ways() {
    scheduler::Links links(cluster_);
    for (const auto& [from_rank, to_rank] : used_ways(plan_)) {
      const ir::DeviceId from = device_of(from_rank), to = device_of(to_rank);
      const ir::LinkLevel& level = cluster_.link(from, to);
      plan_.ways.push_back({.from = from_rank,
                            .to = to_rank,
                            .link = links.between(from, to),
                            .latency = level.latency.count,
                            .byte = 1 / level.bandwidth.count});
    }
    plan_.links = links.count();
  }
  ir::DeviceId device_of(int32_t rank) const { return schedule_.programs[static_cast<size_t>(rank)].device; }

  // How long the gradient norm takes once all devices have reached it; this is added to the first update after it.
  Ticks norm_length() const {
    std::vector<ir::DeviceId> devices;
    for (const ir::Program& program : schedule_.programs)
      if (std::ranges::find(program.actions, ir::ActionOp::kNorm, &ir::Action::op) != program.actions.end())
        devices.push_back(program.device);
    return scheduler::to_ticks(ir::total_time(cluster_, devices), scheduler::kTicksPerSecond);
  }

  void add_programs(const scheduler::ResolvedSchedule& resolved) {
    const Ticks norm = norm_length();
    size_t row = 0;
    for (size_t p = 0; p < schedule_.programs.size(); ++p) {
      std::vector<wire::PaceAction>& program = plan_.programs.emplace_back();
      const std::vector<ir::Action>& actions = schedule_.programs[p].actions;
      Ticks before_step;
      for (size_t i = 0; i < actions.size(); ++i, ++row) {
        const scheduler::Span span = pipeline_.built.timeline.spans[p][i];
        Ticks length = resolved.actions[row].duration;
        if (ir::is_message(actions[i].op)) length = resolved.actions[row].busy;
        if (actions[i].op == ir::ActionOp::kNorm) before_step = norm;
        if (actions[i].op == ir::ActionOp::kStep) length = span.end - span.start + std::exchange(before_step, Ticks());
        program.push_back({.row = actions[i], .nanoseconds = length.count});
      }
    }
  }

  const Pipeline& pipeline_;
  const ir::Cluster& cluster_;
  const ir::Schedule& schedule_;
  std::map<ir::DeviceId, int32_t> rank_of_;
  wire::PacePlan plan_;
};

int32_t rank_of_place(const wire::PacePlan& plan, int32_t stage, int32_t replica) {
  for (const wire::PacePlace& place : plan.places)
    if (place.stage == stage && place.replica == replica) return place.rank;
  return -1;
}

void choose_numbers(wire::PacePlan& plan, const PaceRequest& request, double step) {
  size_t all = 0, longest = 0;
  for (const std::vector<wire::PaceAction>& program : plan.programs) {
    all += program.size();
    longest = std::max(longest, program.size());
  }
  const double cores = request.cores, seconds = std::max(step, 1e-9);
  const double of_actions = std::max(static_cast<double>(longest) * kSecondsOfAction / kLateness,
                                     static_cast<double>(all) * kSecondsOfAction / cores / kLoad);
  const double of_bytes = bytes_of_step(plan) * kSecondsOfByte / cores / kLoad;
  const double wanted = std::max(of_actions, std::min(of_bytes, kLongestStep));
  plan.scale = request.scale > 0 ? request.scale : round_scale(wanted / seconds);
  plan.share = request.share > 0 ? request.share : std::clamp(seconds * plan.scale / of_bytes, 1e-6, 1.0);
}

}  // namespace

double bytes_of_step(const wire::PacePlan& plan) {
  double bytes = 0;
  for (size_t rank = 0; rank < plan.programs.size(); ++rank)
    for (const wire::PaceAction& action : plan.programs[rank]) {
      const wire::ActionRow& row = action.row;
      if (!wire::is_send(row.op)) continue;
      const wire::PaceEdge& edge = plan.edges[static_cast<size_t>(row.edge)];
      const bool forward = row.op == wire::ActionOp::kSendForward;
      if (rank_of_place(plan, forward ? edge.to : edge.from, row.peer_replica) == static_cast<int32_t>(rank)) continue;
      const double samples = edge.of_sample ? static_cast<double>(row.range.size()) : 1;
      bytes += samples * static_cast<double>(edge.bytes) * (forward ? 1 : edge.gradients);
    }
  for (const wire::PaceStage& stage : plan.stages)
    bytes += 2.0 * (stage.replicas - 1) * static_cast<double>(stage.gradient_bytes);
  for (const wire::PaceGroup& group : plan.groups) {
    const auto stages = static_cast<double>(group.stages.size());
    bytes += stages * (stages - 1) * static_cast<double>(group.bytes);
  }
  return bytes;
}

Result<wire::PacePlan> pace_plan_of(const Pipeline& pipeline, const PaceRequest& request) {
  if (std::ranges::any_of(pipeline.plan.assignment.choice, &ir::StageChoice::divides_optimizer_state))
    return Diagnostic{.code = Code::kBadPlan,
                      .message =
                          "replicas divide the optimizer's state (shard_optimizer_state): a paced run does not "
                          "send the weights that they update for each other",
                      .hint = "`simulate` prices these messages; or plan without --shard-optimizer"};
  GP_TRY(wire::PacePlan plan, PacePlanMaker(pipeline).make());
  choose_numbers(plan, request, pipeline.built.seconds());
  return plan;
}

}  // namespace graphpipe::driver
