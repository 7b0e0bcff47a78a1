#include "partitioner/dapple/planner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "partitioner/cost_models/quirks.h"
#include "partitioner/dapple/machines.h"
#include "partitioner/pipedream/one_level_dp.h"
#include "support/stopwatch.h"

namespace graphpipe::partitioner {

namespace {

constexpr std::array kDappleQuirks = {
    quirks::kEqualPipelinesOnly,       quirks::kFillIgnoresReplicas, quirks::kReducesWeightsOfNext,
    quirks::kFirstOnUntouchedMachines, quirks::kFixedBandwidths,     quirks::kForksChargedAtCut,
    quirks::kFirstSourceOnly,
};

constexpr size_t kMaxCuts = 2500;
constexpr size_t kMaxOccupancies = 24;
constexpr int kMaxStraightStages = 64;
constexpr double kRounding = 1e-9;

struct Candidate {
  std::vector<size_t> cuts;  // downset after each stage; the last is full
  std::vector<DeviceCounts> devices;
  int copies = 1;
  double slowest = 0;  // seconds of the global batch
  double traffic = 2;  // how often the bytes of a cut count in it
};

class Dapple {
 public:
  explicit Dapple(const UnitRequest& request)
      : request_(request),
        prices_(*request.prices),
        devices_(request.machine.devices()),
        scale_(static_cast<double>(request.batch) / static_cast<double>(request.profile_batch)),
        machines_(request),
        deadline_(request.time_limit, request.cancel),
        order_(topological_layers(prices_)) {}

  Result<UnitAnswer> run() {
    const Stopwatch watch;
    const TrafficRule rule = !request_.charge_traffic                   ? TrafficRule::kNone
                             : request_.has(quirks::kForksChargedAtCut) ? TrafficRule::kBoundaryAntichain
                                                                        : TrafficRule::kBoundaryTensors;
    GP_TRY_VOID(check_boundary_rule(prices_, rule));
    sets_.emplace(prices_, find_cuts(), rule);
    model_ = {.score = Score::kDapple, .traffic = rule, .memory = MemoryRule::kNone};
    if (sets_->seconds(sets_->size() - 1) <= 0)
      return Diagnostic{.code = Code::kNoFeasiblePlan,
                        .message = "no layer takes any time, so nothing can be sped up",
                        .hint = "profile the layers"};
    single_stages();
    if (devices_ > 1) two_stages();
    straight(devices_);
    if (devices_ % 2 == 0 && devices_ > 2) straight(2);
    if (!request_.has(quirks::kEqualPipelinesOnly)) unequal_pipelines();
    if (!best_)
      return Diagnostic{.code = Code::kNoFeasiblePlan,
                        .message = text("a batch of ", request_.batch, " has no micro-batch of ", request_.micro_batch,
                                        " for every copy of a pipeline"),
                        .hint = "use a larger batch, or a smaller micro-batch"};
    UnitAnswer answer = to_answer();
    answer.search_seconds = watch.seconds();
    return answer;
  }

 private:
  SetTable find_cuts() {
    const Dag dag(prices_.size(), prices_.edges);
    SetTable all(prices_.size());
    const size_t budget = static_cast<size_t>(request_.memory_budget / 8);
    const bool exact = request_.has(quirks::kFirstSourceOnly)
                           ? add_downsets_of_first_source(dag, budget, deadline_, all)
                           : add_all_downsets(dag, budget, deadline_, all);
    if (exact && all.size() <= kMaxCuts) return all;
    stopped_ = "too many sets of layers: the cuts of a few orders were searched";
    SetTable few(prices_.size());
    for (const auto& order : cutting_orders(prices_.edges, prices_.output_bytes))
      add_prefixes(order, kMaxCuts / 5, few);
    return few;
  }

  double work(size_t from, size_t to) const { return sets_->seconds(from, to) * scale_; }
  double leaving(size_t set) const { return sets_->leaving(set) * scale_; }

  double weights(const Candidate& pipeline, size_t stage) const {
    const size_t from = stage == 0 ? 0 : pipeline.cuts[stage - 1], to = pipeline.cuts[stage];
    double bytes = sets_->weights(from, to);
    if (!request_.has(quirks::kReducesWeightsOfNext) || stage + 1 == pipeline.cuts.size()) return bytes;
    for (const uint32_t node : order_)
      if (!has_bit(sets_->sets()[to], node) && has_bit(sets_->sets()[pipeline.cuts[stage + 1]], node))
        return bytes + prices_.weight_bytes[node];
    return bytes;
  }

  // The program's closing formula; 0 if a copy gets no micro-batch.
  double speed_up(const Candidate& pipeline) const {
    const int64_t micro_batches = micro_batches_of(pipeline.copies);
    if (micro_batches == 0) return 0;
    const auto m = static_cast<double>(micro_batches), r = static_cast<double>(pipeline.copies);
    const double whole = work(0, sets_->size() - 1), beat = pipeline.slowest / m;
    double latency = beat * (m - 1), tail = 0;
    for (size_t s = 0; s < pipeline.cuts.size(); ++s) {
      const size_t from = s == 0 ? 0 : pipeline.cuts[s - 1];
      int devices = 0;
      for (const int count : pipeline.devices[s]) devices += count;
      latency += request_.has(quirks::kFillIgnoresReplicas) ? work(from, pipeline.cuts[s]) / (r * m)
                                                            : work(from, pipeline.cuts[s]) / (devices * m);
      if (s + 1 < pipeline.cuts.size())
        latency +=
            machines_.transfer(pipeline.devices[s], pipeline.devices[s + 1], leaving(pipeline.cuts[s]) / (r * m));
      tail = std::max(tail,
                      machines_.reduction(pipeline.devices[s], weights(pipeline, s)) - static_cast<double>(s) * beat);
    }
    return whole / (latency + tail);
  }

  int64_t micro_batches_of(int copies) const { return request_.batch / copies / request_.micro_batch; }

  // Whether a pipeline in `copies` copies whose slowest stage takes at least `slowest` may be better than the best so
  // far. `fill`: seconds of the global batch until the first micro-batch is through.
  bool may_win(int copies, double slowest, double fill) const {
    const auto m = static_cast<double>(micro_batches_of(copies));
    return m > 0 && work(0, sets_->size() - 1) > best_score_ * (1 - kRounding) * ((m - 1) * slowest + fill) / m;
  }

  void offer(Candidate pipeline) {
    const auto has_replicas = [](const DeviceCounts& place) { return std::reduce(place.begin(), place.end()) > 1; };
    if (!request_.replication && std::ranges::any_of(pipeline.devices, has_replicas)) return;
    const double score = speed_up(pipeline);
    if (score > best_score_) {
      best_score_ = score;
      best_ = std::move(pipeline);
    }
  }

  // How often a pipeline over `slots` slots fits on the devices; without replication the others stay idle.
  int copies_of(int slots) const { return request_.replication ? devices_ / slots : 1; }

  // What is left of the general recurrence: all layers in one stage, for every number of slots.
  void single_stages() {
    const size_t full = sets_->size() - 1;
    for (int slots = request_.replication ? std::min(2, devices_) : 1; slots <= devices_; ++slots) {
      const int copies = copies_of(slots);
      const DeviceCounts devices = machines_.fresh_first(machines_.none(), slots * copies);
      if (!devices.empty())
        offer({.cuts = {full}, .devices = {devices}, .copies = copies, .slowest = work(0, full) / (slots * copies)});
    }
  }

  std::vector<DeviceCounts> first_places(int slots, int copies) const {
    if (!request_.has(quirks::kFirstOnUntouchedMachines)) return machines_.candidates(machines_.none(), slots, copies);
    const DeviceCounts fresh = machines_.fresh_first(machines_.none(), slots * copies);
    return fresh.empty() ? std::vector<DeviceCounts>{} : std::vector<DeviceCounts>{fresh};
  }

  void two_stages() {
    const size_t full = sets_->size() - 1;
    for (int slots = 1; slots < devices_ && !deadline_.passed(); ++slots)
      for (const DeviceCounts& first : machines_.candidates(machines_.none(), slots, 1))
        for (const DeviceCounts& second : machines_.candidates(first, devices_ - slots, 1))
          for (size_t cut = 1; cut < full; ++cut) {
            const double slowest = std::max({work(0, cut) / slots, work(cut, full) / (devices_ - slots),
                                             machines_.transfer(first, second, leaving(cut))});
            if (!may_win(1, slowest,
                         work(0, full) /
                             (request_.has(quirks::kFillIgnoresReplicas) ? 1 : std::max(slots, devices_ - slots))))
              continue;
            offer({.cuts = {cut, full}, .devices = {first, second}, .copies = 1, .slowest = slowest, .traffic = 1});
          }
  }

  // One slot per stage, `stages` of them, each on one device of every copy.
  void straight(int stages) {
    const int copies = copies_of(stages);
    const size_t full = sets_->size() - 1;
    if (stages < 2 || stages > kMaxStraightStages || full < static_cast<size_t>(stages)) return;
    const double whole = work(0, full);
    if (!may_win(copies, whole / (stages * copies), whole / copies)) return;
    DeviceOccupancies occupancies(machines_, copies);
    // [stage][downset at which the stage ends]
    std::vector<std::vector<Ways>> ways(1, std::vector<Ways>(full + 1));
    for (size_t to = 1; to <= full; ++to)
      for (const DeviceCounts& place : first_places(1, copies)) {
        const uint32_t id = occupancies.id_of(place);
        ways.front()[to].push_back({.used = id, .place = id, .slowest = work(0, to) / copies});
      }
    for (int stage = 1; stage < stages; ++stage) {
      const std::vector<Ways>& before = ways.back();
      std::vector<Ways> now(full + 1);
      const size_t first = stage + 1 == stages ? full : 1;
      for (size_t to = first; to <= full && !deadline_.passed(); ++to)
        for (size_t from = 1; from < to; ++from)
          if (!before[from].empty() && sets_->includes(to, from)) extend(before[from], from, to, occupancies, now[to]);
      ways.push_back(std::move(now));
    }
    for (const Way& way : ways.back()[full]) offer(traced(ways, way, occupancies));
  }

  // The last stage of a partial pipeline; `cut` and `before` find the stages before it in the table one stage earlier.
  struct Way {
    uint32_t used, place;  // device counts of all stages, and of the last
    double slowest = 0;
    uint32_t cut = 0, before = 0;  // the downset before the last stage, and which of its ways
  };
  using Ways = std::vector<Way>;

  void extend(const Ways& before, size_t from, size_t to, DeviceOccupancies& occupancies, Ways& out) const {
    const double seconds = work(from, to) / occupancies.copies(), bytes = 2 * leaving(from);
    for (uint32_t i = 0; i < before.size(); ++i) {
      const double compute = std::max(before[i].slowest, seconds);
      // The list is full, so that only a faster entry could be replaced, and this is no faster.
      const bool full = out.size() >= kMaxOccupancies;
      if (full && std::ranges::none_of(out, [&](const Way& known) { return compute < known.slowest; })) continue;
      for (const auto& [place, used] : occupancies.next(before[i].used)) {
        const double transfer =
            machines_.transfer(occupancies.counts(before[i].place), occupancies.counts(place), bytes);
        const Way grown{.used = used,
                        .place = place,
                        .slowest = std::max(compute, transfer),
                        .cut = static_cast<uint32_t>(from),
                        .before = i};
        const auto same = std::ranges::find(out, used, &Way::used);
        if (same != out.end()) {
          if (grown.slowest < same->slowest) *same = grown;
        } else if (out.size() < kMaxOccupancies) {
          out.push_back(grown);
        }
      }
    }
  }

  Candidate traced(const std::vector<std::vector<Ways>>& ways, Way way, const DeviceOccupancies& occupancies) const {
    Candidate pipeline{.copies = occupancies.copies(), .slowest = way.slowest};
    size_t cut = sets_->size() - 1;
    for (size_t stage = ways.size(); stage-- > 0;) {
      pipeline.cuts.push_back(cut);
      pipeline.devices.push_back(occupancies.counts(way.place));
      if (stage == 0) break;
      cut = way.cut;
      way = ways[stage - 1][cut][way.before];
    }
    std::ranges::reverse(pipeline.cuts);
    std::ranges::reverse(pipeline.devices);
    return pipeline;
  }

  // The largest bottleneck, in seconds of the profile, with which a pipeline over `slots` slots may still be better
  // than the best.
  double max_seconds(int slots, int copies) const {
    const auto m = static_cast<double>(micro_batches_of(copies));
    if (m <= 1 || best_score_ <= 0) return kInfinity;
    const double whole = work(0, sets_->size() - 1), r = copies;
    const double fill = whole / (request_.has(quirks::kFillIgnoresReplicas) ? r : r * slots);
    return (1 + kRounding) * std::max(0.0, whole * m / best_score_ - fill) / (m - 1) * r / scale_;
  }

  // Chains of stages with any numbers of slots, by the smallest bottleneck; devices are taken in order.
  void unequal_pipelines() {
    for (int slots = 2; slots <= devices_ && !deadline_.passed(); ++slots) {
      const int copies = copies_of(slots);
      if (request_.replication && devices_ % slots != 0) continue;
      for (const double bandwidth : {machines_.links().inside, machines_.links().between}) {
        if (bandwidth != machines_.links().inside && machines_.sizes().size() == 1) continue;
        const PipelineLimits limits{
            .devices = slots,
            .bandwidth = bandwidth,
            .replication = request_.replication,
            .model = {.traffic = model_.traffic, .memory = MemoryRule::kNone, .reduction_factor = 0},
            .max_pairs = request_.max_pairs};
        OneLevelDp search(*sets_, limits, deadline_);
        const double whole = sets_->seconds(sets_->size() - 1);
        // With the slow links the limit would not hold: the final placement may use others.
        const double max_bottleneck =
            bandwidth == machines_.links().inside ? std::min(2 * whole, max_seconds(slots, copies)) : 2 * whole;
        if (const auto pipeline = search.best(max_bottleneck, whole / slots * 0.999)) offer_pipeline(*pipeline, copies);
      }
    }
  }

  void offer_pipeline(const FoundPipeline& pipeline, int copies) {
    Candidate candidate{.copies = copies};
    DeviceCounts used = machines_.none();
    for (const PipelineStage& stage : pipeline.stages) {
      DeviceCounts place = machines_.none();
      int wanted = stage.replicas * copies;
      for (size_t m = 0; m < place.size() && wanted > 0; ++m) {
        place[m] = std::min(wanted, machines_.sizes()[m] - used[m]);
        used[m] += place[m];
        wanted -= place[m];
      }
      candidate.slowest = std::max(candidate.slowest, work(stage.from, stage.to) / (stage.replicas * copies));
      if (!candidate.devices.empty())
        candidate.slowest =
            std::max(candidate.slowest, machines_.transfer(candidate.devices.back(), place, 2 * leaving(stage.from)));
      candidate.cuts.push_back(stage.to);
      candidate.devices.push_back(std::move(place));
    }
    offer(std::move(candidate));
  }

  UnitAnswer to_answer() {
    UnitAnswer answer;
    answer.model = model_;
    answer.model.pipeline_copies = best_->copies;
    answer.model.traffic_factor = best_->traffic;
    answer.unit = "speed-up";
    answer.larger_is_better = true;
    answer.objective = best_score_;
    answer.bound = devices_;
    answer.complete = !deadline_.passed();
    answer.stopped = answer.complete ? stopped_ : "the time limit or an interrupt ended the search";
    answer.states = static_cast<int64_t>(sets_->size()) - 1;
    DeviceCounts used = machines_.none();
    for (size_t s = 0; s < best_->cuts.size(); ++s) {
      ir::StageChoice choice;
      int begin = 0;
      for (size_t m = 0; m < used.size(); ++m) {
        for (int i = 0; i < best_->devices[s][m]; ++i)
          choice.devices.emplace_back(static_cast<size_t>(begin + used[m]++));
        begin += machines_.sizes()[m];
      }
      const std::vector<uint32_t> layers = sets_->stage(s == 0 ? 0 : best_->cuts[s - 1], best_->cuts[s]);
      add_stage(prices_, layers, std::move(choice), {}, answer.plan);
    }
    return answer;
  }

  const UnitRequest& request_;
  const UnitPrices& prices_;
  const int devices_;
  const double scale_;
  const DappleMachines machines_;
  Deadline deadline_;
  const std::vector<uint32_t> order_;
  std::optional<PricedDownsets> sets_;
  CostModel model_;
  std::string stopped_;
  std::optional<Candidate> best_;
  double best_score_ = 0;
};

}  // namespace

std::span<const Quirk> dapple_quirks() { return kDappleQuirks; }

Result<UnitAnswer> plan_dapple(const UnitRequest& request) { return Dapple(request).run(); }

}  // namespace graphpipe::partitioner
