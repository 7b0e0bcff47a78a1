// Messages between two stages without operators: a value is sent forward, its gradient comes back, one item at a time.

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "runtime/executor/executor.h"
#include "runtime/profiling/measure.h"
#include "runtime/transport/transports.h"
#include "support/median.h"
#include "support/text.h"
#include "wire/all_reduce.h"

namespace graphpipe::runtime {
namespace {

using wire::ActionOp;

constexpr int64_t kSmall = 1 << 10, kLarge = 1 << 20;  // bytes
/// A step with more items of large messages would be longer than a time slice of the system's scheduler, and none
/// undisturbed where other programs run.
constexpr int64_t items_of(int64_t bytes) { return bytes < kLarge ? 32 : 4; }
constexpr double kStallSeconds = 60;

at::Tensor payload;

void make_value(const StageArguments& a) { a.slot[0] = payload; }
void take_gradient(const StageArguments& a) { a.slot[1].reset(); }
void take_value(const StageArguments& a) { a.slot[0].reset(); }
void make_gradient(const StageArguments& a) { a.slot[1] = payload; }

/// Two stages, on one device or on two, and an edge that carries `bytes` bytes of a sample; no edge for zero bytes.
struct TwoStages {
  TwoStages(int64_t bytes, int32_t devices, int32_t device) {
    const size_t edges = bytes > 0 ? 1 : 0;
    dims[0] = {.factor = 1, .power = 1};
    dims[1] = {.factor = bytes / 4, .power = 0};
    placement[1].device = devices - 1;
    plan = {.plan_digest = "",
            .batch = items_of(bytes),
            .device_count = devices,
            .stages = rows,
            .edges = {&edge, edges},
            .placement = placement};
    for (int32_t stage : {0, 1}) {
      boundaries[stage] = {.edge = 0,
                           .is_input = stage == 1,
                           .slot = 0,
                           .gradient_slot = 1,
                           .gradient_count = 1,
                           .tensor = {.dims = dims, .batch_axis = 0}};
      entries[stage] = {.stage = stage, .slot_size = 2, .boundaries = {&boundaries[stage], edges}};
      if (devices == 1 || device == stage) held.push_back(&entries[stage]);
    }
    entries[0].forward = make_value;
    entries[0].input_gradient = take_gradient;
    entries[1].forward = take_value;
    entries[1].input_gradient = make_gradient;
    for (int64_t item = 0; item < plan.batch; ++item)
      add_item(item, devices == 1 || device == 0, devices == 1 || device == 1);
    resolved = resolve({.device = device, .plan = &plan, .actions = actions, .stages = held});
  }
  TwoStages(const TwoStages&) = delete;
  TwoStages& operator=(const TwoStages&) = delete;

  void add(ActionOp op, int32_t stage, int64_t item) {
    const bool message = wire::is_message(op);
    if (message && plan.edges.empty()) return;
    actions.push_back({.op = op,
                       .stage = stage,
                       .range = {item, item + 1},
                       .edge = message ? 0 : -1,
                       .peer_replica = message ? 0 : -1,
                       .slot = 0});
  }
  void add_item(int64_t item, bool above, bool below) {
    if (above) add(ActionOp::kForward, 0, item);
    if (above) add(ActionOp::kSendForward, 0, item);
    if (below) add(ActionOp::kReceiveForward, 1, item);
    if (below) add(ActionOp::kForward, 1, item);
    if (below) add(ActionOp::kBackward, 1, item);
    if (below) add(ActionOp::kSendBackward, 1, item);
    if (above) add(ActionOp::kReceiveBackward, 0, item);
    if (above) add(ActionOp::kBackward, 0, item);
  }

  DimRow dims[2];
  EdgeRow edge{.from = 0, .to = 1};
  PlacementRow placement[2] = {{0, 0, 0}, {1, 0, 0}};
  StageRow rows[2];
  PlanTable plan;
  BoundaryRow boundaries[2];
  StageEntry entries[2];
  std::vector<const StageEntry*> held;
  std::vector<wire::ActionRow> actions;
  ResolvedProgram resolved;
};

/// Median seconds of an item's round trip.
double seconds_of_item(const TwoStages& stages, int32_t rank, std::unique_ptr<Transport> transport,
                       const Device& device, MessageRounds rounds) {
  payload = device.upload(at::zeros({1, stages.dims[1].factor}));
  const std::unique_ptr<Data> data = synthetic_data(1, 0);
  std::vector<StageState> states;
  for (const Instance& instance : stages.resolved.instances)
    states.push_back({.entry = instance.entry, .optimizer = Optimizer("sgd", {})});
  Channels channels(stages.plan, rank, stages.resolved.channels, std::move(transport), kStallSeconds, device.copies());
  const UpdateSettings updates;
  Executor executor(stages.plan, stages.resolved, channels, *data, device, states, 0, updates);
  std::vector<double> seconds;
  for (int step = 0; step < rounds.warm_ups + rounds.steps; ++step) {
    const Clock::time_point start = Clock::now();
    executor.run_step(step);
    device.finish();
    if (step >= rounds.warm_ups) seconds.push_back(seconds_since(start) / static_cast<double>(stages.plan.batch));
  }
  executor.finish();
  channels.leave("");
  return rounds.fastest ? std::ranges::min(seconds) : median(std::move(seconds));
}

/// Keeps the keys of one opening separate from those of others.
class PrefixedStore : public Store {
 public:
  PrefixedStore(Store& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}
  void set(const std::string& key, const std::string& value) override { store_.set(prefix_ + key, value); }
  std::string get(const std::string& key) override { return store_.get(prefix_ + key); }
  void barrier(const std::string& name, int32_t count) override { store_.barrier(prefix_ + name, count); }

 private:
  Store& store_;
  std::string prefix_;
};

/// A line through two points, without negative coefficients.
MessageSeconds line(double small, double large) {
  const double slope = std::max(0.0, (large - small) / static_cast<double>(kLarge - kSmall));
  return {.constant = std::max(0.0, small - slope * static_cast<double>(kSmall)), .per_byte = slope};
}

}  // namespace

double measure_bare_item(const Device& device, MessageRounds rounds) {
  return seconds_of_item(TwoStages(0, 1, 0), 0, nullptr, device, rounds);
}

MessageSeconds measure_messages_of_one(const Device& device, double bare, MessageRounds rounds) {
  const auto seconds = [&](int64_t bytes) {
    const TwoStages stages(bytes, 1, 0);
    // Two sends and two receives in addition to the actions. A message is copied once here, but at each end between
    // ranks.
    return std::max(0.0, seconds_of_item(stages, 0, nullptr, device, rounds) - bare);
  };
  const double small = seconds(kSmall), large = seconds(kLarge);
  MessageSeconds of_end = line(small / 4, large / 4);
  of_end.per_byte *= 2;
  return of_end;
}

MessageSeconds measure_link(const Device& device, Store& store, int32_t rank, bool may_spin, double bare,
                            const MessageSeconds& busy, MessageRounds rounds) {
  const auto seconds = [&](int64_t bytes) {
    const TwoStages stages(bytes, 2, rank);
    PrefixedStore own(store, text("link", bytes, "/"));
    const TransportSetup setup{.rank = rank,
                               .world_size = 2,
                               .store = &own,
                               .channels = remote_channels(stages.resolved.channels),
                               .may_spin = may_spin};
    const double item = seconds_of_item(stages, rank, open_shm(setup), device, rounds);
    own.barrier("over", 2);
    const double busy_seconds = busy.constant + busy.per_byte * static_cast<double>(bytes);
    return std::max(0.0, (item - bare) / 2 - busy_seconds);
  };
  const double small = seconds(kSmall), large = seconds(kLarge);
  return line(small, large);
}

double measure_additions(const Device& device) {
  constexpr int64_t kChunks = 64, kElements = wire::kChunkBytes / static_cast<int64_t>(sizeof(float));
  const at::Tensor gradients = device.upload(at::zeros({kChunks, kElements}));
  at::Tensor arrived = device.upload(at::zeros({kElements}));
  std::vector<double> seconds;
  for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
    arrived.zero_();  // like a receive, it brings the chunk into the cache
    device.finish();
    const Clock::time_point start = Clock::now();
    gradients[chunk].add_(arrived);
    device.finish();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return median(std::move(seconds)) / static_cast<double>(wire::kChunkBytes);
}

}  // namespace graphpipe::runtime
