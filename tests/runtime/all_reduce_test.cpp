// The all-reduce of replicas over every transport between ranks: the order of its sums, the bytes of each rank, and
// which rank it names as the cause where one dies or stops in the middle.

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp2.h>

#include "runtime/collectives/reduce.h"
#include "runtime/error.h"
#include "runtime/executor/plan_channels.h"
#include "runtime/tensors.h"
#include "tests/runtime/transport_ranks.h"

// After LibTorch, some of whose headers have a CHECK of their own.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <deque>
#include <thread>

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

struct Parameter {
  int64_t elements = 0;
  ElementType type = ElementType::kFloat32;
};

struct Shape {
  const char* name;
  std::vector<Parameter> parameters;
};

constexpr int64_t kEvery = 4099;  // every kEvery-th element of the large buckets is compared
constexpr int64_t kChunk = graphpipe::wire::kChunkBytes / 4;  // elements of float32

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> kShapes = {
      {"odd sizes", {{7}, {1001}, {13}}},
      {"smaller than the number of replicas", {{1}, {1}, {2}}},
      {"one element in all", {{1}}},
      {"empty tensors between others", {{0}, {3}, {0}, {17}, {0}}},
      {"nothing at all", {{0}, {0}}},
      {"nothing to train", {}},
      {"several types",
       {{100}, {31, ElementType::kFloat64}, {9, ElementType::kFloat64}, {64, ElementType::kBFloat16}, {5}}},
      {"a bucket and one element", {{2 * kChunk + 1}, {11}}},
      {"more buckets than are in flight", {{5}, {10 * kChunk + 123}, {300}, {kChunk - 1}}},
  };
  return kShapes;
}

// More than two replicas need more than that to fill a bucket.
std::vector<Shape> shapes_for(int32_t replicas) {
  std::vector<Shape> out = shapes();
  if (replicas > 3) out.pop_back();
  return out;
}

/// Stages with these parameters, all with the same replicas on the same devices.
struct ReplicatedStages {
  ReplicatedStages(const std::vector<Shape>& shapes, int32_t replicas, bool mirrored = false)
      : params(shapes.size()), entries(shapes.size()), stages(shapes.size()) {
    for (size_t s = 0; s < shapes.size(); ++s) {
      for (const Parameter& parameter : shapes[s].parameters) {
        dims.push_back({.factor = parameter.elements, .power = 0});
        params[s].push_back({.name = "w", .tensor = {.type = parameter.type, .dims = {&dims.back(), 1}}});
      }
      entries[s].stage = static_cast<int32_t>(s);
      entries[s].params = params[s];
      stages[s].replicas = replicas;
      for (int32_t replica = 0; replica < replicas; ++replica)
        placement.push_back({.stage = static_cast<int32_t>(s),
                             .replica = replica,
                             .device = mirrored ? replicas - 1 - replica : replica});
    }
    plan = {.plan_digest = "", .batch = 8, .device_count = replicas, .stages = stages, .placement = placement};
  }
  ReplicatedStages(const ReplicatedStages&) = delete;

  int32_t replicas() const { return stages.front().replicas; }
  int32_t replica_on(int32_t device) const {
    return std::ranges::find(placement, device, &PlacementRow::device)->replica;
  }
  std::vector<at::Tensor> gradients(size_t stage, int32_t replica, int64_t update) const;
  using Shares = std::vector<std::vector<at::Tensor>>;  // by replica
  Shares shares(size_t stage, int64_t update) const;
  std::vector<at::Tensor> sums(size_t stage, const Shares& shares) const;
  int64_t bytes(size_t stage) const {
    int64_t total = 0;
    for (const ParamRow& row : params[stage]) total += bytes_of(row.tensor, 1);
    return total;
  }

  std::deque<DimRow> dims;
  std::vector<std::vector<ParamRow>> params;
  std::vector<StageEntry> entries;
  std::vector<StageRow> stages;
  std::vector<PlacementRow> placement;
  PlanTable plan;
};

// Numbers whose sums depend on the order of the additions.
std::vector<at::Tensor> ReplicatedStages::gradients(size_t stage, int32_t replica, int64_t update) const {
  std::vector<at::Tensor> out;
  for (const ParamRow& row : params[stage]) {
    const double shift = static_cast<double>(replica * 104729 + static_cast<int64_t>(out.size()) * 31 + update * 17);
    const at::Tensor mixed = at::arange(row.tensor.dims[0].factor, at::TensorOptions().dtype(at::kDouble))
                                 .mul_(7919)
                                 .add_(shift)
                                 .remainder_(9973);
    out.push_back(mixed.div(997).sub_(5).mul_(at::exp2(mixed.remainder(7).floor_())).to(scalar_type(row.tensor.type)));
  }
  return out;
}

ReplicatedStages::Shares ReplicatedStages::shares(size_t stage, int64_t update) const {
  Shares out;
  for (int32_t replica = 0; replica < replicas(); ++replica) out.push_back(gradients(stage, replica, update));
  return out;
}

// Element by element, round the ring from the owner of its chunk on.
std::vector<at::Tensor> ReplicatedStages::sums(size_t stage, const Shares& shares) const {
  const std::vector<int32_t> ring = ring_of(plan, static_cast<int32_t>(stage));
  std::vector<at::Tensor> out;
  for (const at::Tensor& share : shares.front()) out.push_back(share.clone());
  for (const Bucket& bucket : buckets_of(entries[stage], replicas())) {
    std::vector<size_t> owner;
    for (int32_t c = 0; c < replicas(); ++c)
      owner.insert(owner.end(), static_cast<size_t>(chunk_of(bucket, c, replicas()).count), static_cast<size_t>(c));
    size_t place = 0;
    for (const BucketPart& part : bucket.parts) {
      for (int64_t i = part.first; i < part.first + part.count; ++i, ++place) {
        const auto element = [&](size_t position) {
          return shares[static_cast<size_t>(ring[(owner[place] + position) % ring.size()])][part.parameter].narrow(0, i,
                                                                                                                   1);
        };
        if (bucket.elements > 1000 && (i - part.first) % kEvery != 0) continue;  // a sample of the large ones
        at::Tensor sum = element(0).clone();
        for (size_t k = 1; k < ring.size(); ++k) sum.add_(element(k));
        out[part.parameter].narrow(0, i, 1).copy_(sum);
      }
    }
  }
  return out;
}

bool near_the_sum(const ReplicatedStages& plan, size_t stage, const ReplicatedStages::Shares& shares,
                  const std::vector<at::Tensor>& found) {
  std::vector<at::Tensor> wide(found.size());
  for (size_t p = 0; p < found.size(); ++p) {
    wide[p] = shares.front()[p].to(at::kDouble);
    for (size_t replica = 1; replica < shares.size(); ++replica) wide[p].add_(shares[replica][p]);
  }
  for (size_t p = 0; p < found.size(); ++p) {
    const double tolerance = plan.params[stage][p].tensor.type == ElementType::kBFloat16 ? 16 : 0.01;
    if (found[p].numel() > 0 && found[p].to(at::kDouble).sub(wide[p]).abs().max().item<double>() > tolerance)
      return false;
  }
  return true;
}

// The elements that sums() has found, bit by bit; all others within rounding.
bool agrees(const ReplicatedStages& plan, size_t stage, int64_t update, const std::vector<at::Tensor>& found) {
  const ReplicatedStages::Shares shares = plan.shares(stage, update);
  const std::vector<at::Tensor> expected = plan.sums(stage, shares);
  for (const Bucket& bucket : buckets_of(plan.entries[stage], plan.replicas()))
    for (const BucketPart& part : bucket.parts)
      for (int64_t i = part.first; i<part.first + part.count; i += bucket.elements> 1000 ? kEvery : 1) {
        if (!at::equal(found[part.parameter].narrow(0, i, 1), expected[part.parameter].narrow(0, i, 1))) return false;
      }
  return near_the_sum(plan, stage, shares, found);
}

/// Counts what a rank sends, and may do something in the middle.
class Counting final : public Transport {
 public:
  Counting(std::unique_ptr<Transport> real, RankReport& report, std::function<void(int)> at_send)
      : real_(std::move(real)), report_(report), at_send_(std::move(at_send)) {}
  const char* name() const override { return real_->name(); }
  bool takes_device_memory(ChannelKind kind) const override { return real_->takes_device_memory(kind); }
  void post_send(size_t channel, Message& message) override {
    if (at_send_) at_send_(sends_++);
    report_.bytes[message.header.key.index] += message.header.bytes;
    real_->post_send(channel, message);
  }
  void post_receive(size_t channel, Message& message) override { real_->post_receive(channel, message); }
  void forget(const Message& message) override { real_->forget(message); }
  bool progress() override { return real_->progress(); }
  void wait(std::chrono::microseconds longest) override { real_->wait(longest); }
  void publish(const Activity& activity) override { real_->publish(activity); }
  std::optional<Activity> activity_of(int32_t rank) const override { return real_->activity_of(rank); }
  std::optional<PeerFailure> find_failure() override { return real_->find_failure(); }
  void leave(const std::string& problem) override { real_->leave(problem); }

 private:
  std::unique_ptr<Transport> real_;
  RankReport& report_;
  std::function<void(int)> at_send_;
  int sends_ = 0;
};

std::vector<ChannelSpec> channels_of(const ReplicatedStages& plan, int32_t device) {
  ResolvedProgram resolved;
  for (const StageEntry& entry : plan.entries)
    resolved.instances.push_back({.entry = &entry, .replica = plan.replica_on(device)});
  return plan_channels({.device = device, .plan = &plan.plan}, resolved);
}

struct Misbehaviour {
  int32_t rank = -1;
  std::function<void(int)> at_send;
  double stall_seconds = 20;
};

// As a backward makes them: one gradient after the other, from the last parameter on. Of the first it tells nothing.
void begin_during_backward(Reduction& reduction, std::vector<at::Tensor>& gradients) {
  if (!reduction.can_begin_early()) return;
  const std::vector<at::Tensor> made = std::exchange(gradients, std::vector<at::Tensor>(gradients.size()));
  reduction.begin_early(3);
  for (size_t p = made.size(); p-- > 0;) {
    gradients[p] = made[p];
    const auto param = static_cast<int32_t>(p);
    if (p > 0) reduction.note_complete({&param, 1});
  }
}

// Both updates of a step, where ranks begin the second at different times, and some before all gradients are complete:
// the order of the messages must not depend on it. Returns whether the sums are right.
bool reduce_stage(const ReplicatedStages& plan, size_t stage, int32_t replica, Channels& channels) {
  const auto device = open_cpu();
  const StageEntry& entry = plan.entries[stage];
  StageState state{.entry = &entry,
                   .replica = replica,
                   .trainable = trainable_parameters(entry),
                   .optimizer = Optimizer("sgd", std::vector<UpdateTerms>(entry.params.size()))};
  const graphpipe::wire::SampleRange updates[] = {{0, 4}, {4, 8}};
  for (const ParamRow& row : entry.params) state.weights.push_back(empty_tensor(row.tensor, 1));
  for (const auto& update : updates) gradients_of(state, update.first) = plan.gradients(stage, replica, update.first);
  Reduction first(plan.plan, channels, *device, state, updates[0], nullptr);
  Reduction second(plan.plan, channels, *device, state, updates[1], &first);
  channels.publish(
      {.op = graphpipe::wire::ActionOp::kReduceGradient, .stage = entry.stage, .replica = replica, .range = updates[0]},
      3);
  const auto advance = [&] { first.advance(), second.advance(); };
  if (replica % 3 == 0) begin_during_backward(first, gradients_of(state, updates[0].first));
  first.begin(3);
  if (replica % 2 == 0) second.begin(3);
  channels.wait_until([&] { return first.finished(); }, [&] { return first.waits_for(); }, advance);
  if (replica % 4 == 1) begin_during_backward(second, gradients_of(state, updates[1].first));
  second.begin(3);
  channels.wait_until([&] { return second.finished(); }, [&] { return second.waits_for(); }, advance);
  return std::ranges::all_of(updates, [&](const auto& update) {
    return agrees(plan, stage, update.first, gradients_of(state, update.first));
  });
}

// The exit code is one more than the first stage whose sums are wrong.
std::vector<RankReport> run_ranks(const TransportEntry& entry, const ReplicatedStages& plan,
                                  const Misbehaviour& bad = {}) {
  return run_on_ranks(
      entry, plan.replicas(), [&](int32_t rank) { return remote_channels(channels_of(plan, rank)); },
      [&](int32_t rank, std::unique_ptr<Transport> transport, RankReport& report) {
        auto counting = std::make_unique<Counting>(std::move(transport), report,
                                                   rank == bad.rank ? bad.at_send : std::function<void(int)>());
        Channels channels(plan.plan, rank, channels_of(plan, rank), std::move(counting), bad.stall_seconds);
        for (size_t stage = 0; stage < plan.entries.size(); ++stage)
          if (!reduce_stage(plan, stage, plan.replica_on(rank), channels)) return static_cast<int>(stage) + 1;
        channels.leave("");
        return 0;
      });
}

// Two updates; the chunks of a bucket differ by an element, and a rank leaves out one chunk in each half.
void check_bytes(const ReplicatedStages& plan, size_t stage, const std::vector<RankReport>& ranks) {
  int64_t min_bytes = ranks[0].bytes[stage], max_bytes = min_bytes, total = 0;
  for (const RankReport& report : ranks) {
    min_bytes = std::min(min_bytes, report.bytes[stage]);
    max_bytes = std::max(max_bytes, report.bytes[stage]);
    total += report.bytes[stage];
  }
  const auto buckets = static_cast<int64_t>(buckets_of(plan.entries[stage], plan.replicas()).size());
  CHECK(total == 2 * 2 * (plan.replicas() - 1) * plan.bytes(stage));
  CHECK(max_bytes - min_bytes <= 2 * 2 * buckets * 8);
}

}  // namespace

TEST_CASE("replicas get the sums in the ring's order, and each sends its share of the bytes") {
  for (const TransportEntry& entry : testable_transports()) {
    for (const int32_t replicas : {2, 3, 4, 5}) {
      CAPTURE(entry.name);
      CAPTURE(replicas);
      const std::vector<Shape> tried = shapes_for(replicas);
      const ReplicatedStages plan(tried, replicas, replicas == 4);
      const std::vector<RankReport> ranks = run_ranks(entry, plan);
      for (const RankReport& report : ranks) {
        CAPTURE(report.error);
        CHECK(report.exit_code == 0);
      }
      for (size_t stage = 0; stage < tried.size(); ++stage) {
        CAPTURE(tried[stage].name);
        check_bytes(plan, stage, ranks);
      }
    }
  }
}

TEST_CASE("buckets hold every element once, from the last parameter on, and cut none that shares one") {
  for (const Shape& shape : shapes()) {
    for (const int32_t replicas : {2, 3, 7}) {
      CAPTURE(shape.name);
      const ReplicatedStages plan({shape}, replicas);
      std::vector<int64_t> seen(shape.parameters.size(), 0);
      size_t last = shape.parameters.size();
      for (const Bucket& bucket : buckets_of(plan.entries[0], replicas)) {
        int64_t elements = 0, chunks = 0;
        for (const BucketPart& part : bucket.parts) {
          CHECK(part.parameter <= last);
          last = part.parameter;
          CHECK(part.first == seen[part.parameter]);
          seen[part.parameter] += part.count;
          elements += part.count;
          CHECK(plan.params[0][part.parameter].tensor.type == bucket.type);
          if (bucket.parts.size() > 1) CHECK(part.count == shape.parameters[part.parameter].elements);
        }
        CHECK(elements == bucket.elements);
        CHECK(elements * element_size(bucket.type) <= replicas * graphpipe::wire::kChunkBytes);
        for (int32_t c = 0; c < replicas; ++c) {
          CHECK(chunk_of(bucket, c, replicas).first == chunks);
          chunks += chunk_of(bucket, c, replicas).count;
        }
        CHECK(chunks == elements);
      }
      for (size_t p = 0; p < seen.size(); ++p) CHECK(seen[p] == shape.parameters[p].elements);
    }
  }
  CHECK(buckets_of(ReplicatedStages({{"alone", {{100}}}}, 1).entries[0], 1).empty());
}

TEST_CASE("the ring follows the devices, not the numbers of the replicas") {
  const PlacementRow placement[] = {{0, 0, 5}, {0, 1, 2}, {0, 2, 7}};
  const StageRow stage{.replicas = 3};
  const PlanTable plan{.stages = {&stage, 1}, .placement = placement};
  const std::vector<int32_t> by_device = {1, 0, 2};
  CHECK(ring_of(plan, 0) == by_device);
  const RingPosition place = ring_position(plan, 0, 0);
  CHECK(place.position == 1);
  CHECK(place.previous == 1);
  CHECK(place.next == 2);
}

TEST_CASE("a rank that dies inside the all-reduce is blamed by name") {
  for (const TransportEntry& entry : testable_transports()) {
    if (std::string(entry.name) == "nccl") continue;  // the fake knows no death
    CAPTURE(entry.name);
    const ReplicatedStages stage({{"large", {{20 * kChunk}}}}, 3);
    const Misbehaviour dies{.rank = 1, .at_send = [](int send) {
                              if (send == 5) raise(SIGKILL);
                            }};
    const std::vector<RankReport> ranks = run_ranks(entry, stage, dies);
    CHECK(ranks[1].exit_code == -1);
    // Its neighbour finds it; who comes later may find the neighbour gone first.
    CAPTURE(ranks[2].error);
    CHECK(ranks[2].exit_code == kRankFoundFailure);
    CHECK(std::string(ranks[2].error).find("rank 1 (stage 0)") != std::string::npos);
    CHECK(std::string(ranks[2].error).find("REDUCE of samples [0,4) of stage 0") != std::string::npos);
    CHECK(ranks[0].exit_code == kRankFoundFailure);
  }
}

TEST_CASE("a rank that stops inside the all-reduce is blamed by all, also by those that do not wait for it") {
  for (const TransportEntry& entry : testable_transports()) {
    if (std::string(entry.name) != "shm") continue;  // what others do is known there at once
    const ReplicatedStages stage({{"large", {{20 * kChunk}}}}, 4);
    // Long against what a host with other work takes from the innocent ranks.
    const auto sleeps = [](int send) {
      if (send == 5) std::this_thread::sleep_for(std::chrono::seconds(6));
    };
    const std::vector<RankReport> ranks = run_ranks(entry, stage, {.rank = 2, .at_send = sleeps, .stall_seconds = 2});
    // The first one to notice names it; the others may quote that one.
    int blamed = 0;
    for (const size_t rank : {size_t{0}, size_t{1}, size_t{3}}) {
      CAPTURE(ranks[rank].error);
      CHECK(ranks[rank].exit_code == kRankFoundFailure);
      blamed += std::string(ranks[rank].error).find("rank 2 (stage 0) made no progress") != std::string::npos ? 1 : 0;
    }
    CHECK(blamed >= 1);
  }
}
