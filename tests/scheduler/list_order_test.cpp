// Slices, concatenations, memory and flushes: made by the lowering where they are needed, taken where a list states
// them, refused with the first offending action where they stand wrong.

#include "scheduler/validate/list_order.h"

#include <doctest/doctest.h>

#include "scheduler/build_schedule.h"
#include "scheduler/lowering/items.h"
#include "scheduler/memory/memory.h"
#include "scheduler/validate/check_schedule.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"
#include "tests/scheduler/validated_memory.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

using Rows = std::vector<Action>;

/// Two stages on two devices, four samples: one has items of `upper` samples, the other of `lower`.
StandaloneCase two_sizes(int64_t upper, int64_t lower) {
  std::vector<StandaloneStage> stages(2);
  stages[1].predecessors = {StageId(size_t{0})};
  const int64_t sizes[] = {upper, lower};
  for (size_t s = 0; s < 2; ++s) {
    stages[s].forward = stages[s].input_gradient = stages[s].weight_gradient = ir::SampleFunction::polynomial(1, 0);
    stages[s].choice.micro_batch = Samples(sizes[s]);
    stages[s].choice.devices = {ir::DeviceId(s)};
  }
  StandaloneCase standalone{standalone_graph(stages, Samples(4)), standalone_cluster(2)};
  for (ir::Stage& stage : standalone.graph.stages) {
    stage.weight_bytes = stage.trainable_weight_bytes = Bytes(1);
    stage.stash_to_input_gradient = ir::SampleFunction::polynomial(0, 10);
  }
  return standalone;
}

Schedule lowered_gpipe(const StandaloneCase& standalone) {
  const auto compute = order_gpipe({.graph = standalone.graph, .cluster = standalone.cluster});
  REQUIRE(compute.ok());
  return *insert_transfers(standalone.graph, *compute);
}

Action row(const char* text) { return *ir::parse_action(text); }

Rows::iterator place(Rows& rows, const char* text) {
  const auto found = std::find(rows.begin(), rows.end(), row(text));
  REQUIRE(found != rows.end());
  return found;
}

void insert_before(Schedule& schedule, size_t device, const char* before, const char* text) {
  Rows& rows = schedule.programs[device].actions;
  rows.insert(place(rows, before), row(text));
}

/// What the check says first; the simulator must refuse the same schedules.
std::string refusal(const StandaloneCase& standalone, const Schedule& schedule, const CheckOptions& options = {}) {
  const Status status = check_schedule(standalone.graph, standalone.cluster, schedule, options);
  CheckOptions unclaimed = options;
  unclaimed.claims = {};
  CHECK(simulate(standalone.graph, standalone.cluster, schedule).ok() ==
        check_schedule(standalone.graph, standalone.cluster, schedule, unclaimed).ok());
  return status.ok() ? "" : status.problems().front().message;
}

template <typename Change>
void check_refused(const StandaloneCase& standalone, Schedule schedule, Change&& change, const std::string& message) {
  CAPTURE(message);
  change(schedule);
  const std::string found = refusal(standalone, schedule);
  CAPTURE(found);
  CHECK(found.find(message) != std::string::npos);
}

}  // namespace

TEST_CASE("messages of parts are cut before they are sent, and what comes in pieces is joined before it is read") {
  const StandaloneCase standalone = two_sizes(1, 2);
  const Schedule schedule = lowered_gpipe(standalone);
  INFO(ir::print_schedule(schedule));
  const auto text_of = [&](size_t device) {
    std::string out;
    for (const Action& action : schedule.programs[device].actions)
      if (action.range.first < 2) out += (out.empty() ? "" : " ") + ir::print_action(action);
    return out;
  };
  CHECK(text_of(1) ==
        "1RECV_F[0,1)e0p0s0 1RECV_F[1,2)e0p0s0 1CONCAT[0,2)e0s0 1F[0,2)s0 1B[0,2)s0 1SLICE[0,1)e0s0 "
        "1SEND_B[0,1)e0p0s0 1SLICE[1,2)e0s0 1SEND_B[1,2)e0p0s0 1FLUSH[0,4) 1STEP[0,4)v1");
  CHECK(text_of(0) ==
        "0F[0,1)s0 0SEND_F[0,1)e0p0s0 0F[1,2)s1 0SEND_F[1,2)e0p0s1 0RECV_B[0,1)e0p0s0 0RECV_B[1,2)e0p0s1 0B[0,1)s0 "
        "0B[1,2)s1 0FLUSH[0,4) 0STEP[0,4)v1");
  CHECK(refusal(standalone, schedule).empty());
}

TEST_CASE("every schedule states a slice per message of a part and a concatenation per value in pieces, and no more") {
  int slices = 0, concatenations = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const StandaloneCase standalone = random_stages(seed);
    const Schedule schedule = lowered_gpipe(standalone);
    const ItemTable items(standalone.graph, schedule);
    std::map<std::tuple<ItemIndex, int32_t, bool>, int> pieces;
    int parts = 0, cuts = 0, joins = 0;
    for (const ir::Program& program : schedule.programs)
      for (const Action& a : program.actions) {
        cuts += a.op == ActionOp::kSlice;
        joins += a.op == ActionOp::kConcatenate;
        if (!ir::is_message(a.op)) continue;
        const ItemIndex item = items.item_of(a);
        parts += ir::is_send(a.op) && items[item].range != a.range;
        if (ir::is_receive(a.op)) ++pieces[{item, a.edge, ir::is_backward_message(a.op)}];
      }
    CHECK(cuts == parts);
    CHECK(joins == std::count_if(pieces.begin(), pieces.end(), [](const auto& piece) { return piece.second > 1; }));
    slices += cuts;
    concatenations += joins;
  }
  CHECK(slices > 100);
  CHECK(concatenations > 100);
}

TEST_CASE("slices and concatenations that are missing or stand wrong") {
  const StandaloneCase standalone = two_sizes(1, 2);
  const Schedule good = lowered_gpipe(standalone);
  const auto drop = [](size_t device, const char* text) {
    return [=](Schedule& s) { s.programs[device].actions.erase(place(s.programs[device].actions, text)); };
  };
  const auto add = [](size_t device, const char* before, const char* text) {
    return [=](Schedule& s) { insert_before(s, device, before, text); };
  };
  check_refused(standalone, good, drop(1, "1SLICE[0,1)e0s0"), "before position 9: 1SLICE[0,1)e0s0 is missing");
  check_refused(standalone, good, drop(1, "1CONCAT[0,2)e0s0"), "before position 2: 1CONCAT[0,2)e0s0 is missing");
  check_refused(standalone, good, add(1, "1CONCAT[0,2)e0s0", "1CONCAT[0,2)e0s0"), "joins a second time");
  check_refused(standalone, good, add(1, "1B[0,2)s0", "1CONCAT[0,2)e0s0"), "right before the action that reads");
  check_refused(standalone, good, add(0, "0B[0,1)s0", "0CONCAT[0,1)e0s0"), "joins what does not arrive in pieces");
  check_refused(standalone, good, add(1, "1B[0,2)s0", "1SLICE[0,1)e0s0"), "right before the send of what it cuts");
  check_refused(standalone, good, add(0, "0SEND_F[0,1)e0p0s0", "0SLICE[0,1)e0s0"), "its whole item");
  check_refused(standalone, good, add(1, "1SEND_B[0,1)e0p0s0", "1SLICE[0,1)e7s0"), "names an edge that does not exist");
}

TEST_CASE("memory may be stated: allocation first, release last, an offload and its reload between") {
  const StandaloneCase standalone = two_sizes(2, 2);
  const Schedule good = lowered_gpipe(standalone);
  INFO(ir::print_schedule(good));
  Schedule stated = good;
  insert_before(stated, 0, "0F[0,2)s0", "0ALLOC[0,2)s0");
  insert_before(stated, 0, "0F[2,4)s1", "0OFFLOAD[0,2)s0");
  insert_before(stated, 0, "0B[0,2)s0", "0RELOAD[0,2)s0");
  insert_before(stated, 0, "0B[2,4)s1", "0RELEASE[0,2)s0");
  insert_before(stated, 0, "0F[0,2)s0", "0TRACE[0,4)");
  CHECK(refusal(standalone, stated).empty());
  const auto with = [](const char* before, const char* text) {
    return [=](Schedule& s) { insert_before(s, 0, before, text); };
  };
  check_refused(standalone, good, with("0B[0,2)s0", "0ALLOC[0,2)s0"), "after the first action of its item");
  check_refused(standalone, good, with("0B[0,2)s0", "0RELEASE[0,2)s0"), "before the last action of its item");
  check_refused(standalone, good, with("0F[0,2)s0", "0OFFLOAD[0,2)s0"), "before the forward of its item");
  check_refused(standalone, good, with("0B[0,2)s0", "0OFFLOAD[0,2)s0"), "needs what its item has offloaded");
  check_refused(standalone, good, with("0B[0,2)s0", "0RELOAD[0,2)s0"), "brings back what is not away");
  check_refused(standalone, good, with("0B[2,4)s1", "0OFFLOAD[0,2)s0"), "leaves its item in the host's memory");
  check_refused(standalone, good, with("0F[0,2)s0", "0ALLOC[0,2)s1"), "uses another slot");
  check_refused(standalone, good, with("0F[2,4)s1", "0OFFLOAD[0,1)s0"), "has other samples than its forward");
}

TEST_CASE("an offload makes room and takes the time of a copy") {
  StandaloneCase standalone = two_sizes(2, 2);
  const Schedule good = lowered_gpipe(standalone);
  Schedule stated = good;
  insert_before(stated, 0, "0F[2,4)s1", "0OFFLOAD[0,2)s0");
  insert_before(stated, 0, "0B[0,2)s0", "0OFFLOAD[2,4)s1");
  insert_before(stated, 0, "0B[0,2)s0", "0RELOAD[0,2)s0");
  insert_before(stated, 0, "0B[2,4)s1", "0RELOAD[2,4)s1");
  INFO(ir::print_schedule(stated));
  CHECK(refusal(standalone, stated).empty());
  // Per item a stash of 20 bytes and an output of 2, and one received gradient of 2: two items at once without the
  // offloads, one with them.
  const DeviceMemory held = memory_of(standalone.graph, good, {})[0], less = memory_of(standalone.graph, stated, {})[0];
  CHECK(held.peak - held.fixed == Bytes(46));
  CHECK(less.peak - less.fixed == Bytes(24));
  check_that_validator_agrees(standalone.graph, stated, {});
  // A copy of stash and output, 22 bytes in two seconds; the second offload runs while the gradient is awaited.
  for (ir::Device& device : standalone.cluster.devices) device.memory_bandwidth = BytesPerSecond(11);
  const auto makespan = [&](const Schedule& schedule) {
    return simulate(standalone.graph, standalone.cluster, schedule, {.ticks_per_second = 1000})->makespan;
  };
  CHECK(makespan(stated) > makespan(good));
  CHECK(makespan(stated) <= makespan(good) + Ticks(8000));
}

TEST_CASE("no item crosses a flush, and what is called synchronous has one before its step") {
  const StandaloneCase standalone = two_sizes(2, 2);
  const Schedule good = lowered_gpipe(standalone);
  const auto with = [](size_t device, const char* before, const char* text) {
    return [=](Schedule& s) { insert_before(s, device, before, text); };
  };
  check_refused(standalone, good, with(0, "0F[2,4)s1", "0FLUSH[0,2)"), "comes while an item is under way");
  check_refused(standalone, good, with(0, "0STEP[0,4)v1", "0FLUSH[0,4)"), "where the flush before it has ended");
  check_refused(standalone, good, with(0, "0F[0,2)s0", "0FLUSH[0,2)"), "comes after the flush that ends its samples");
  Schedule one_by_one =
      *insert_transfers(standalone.graph, *order_none({.graph = standalone.graph, .cluster = standalone.cluster}),
                        {.finish_step = false});
  insert_before(one_by_one, 1, "1RECV_F[2,4)e0p0s0", "1FLUSH[0,2)");
  INFO(ir::print_schedule(one_by_one));
  CHECK(refusal(standalone, one_by_one, {.synchronous = false}).empty());
  const CheckOptions synchronous = {.claims = {.synchronous = true}};
  CHECK(refusal(standalone, good, synchronous).empty());
  Schedule without = good;
  without.programs[1].actions.erase(place(without.programs[1].actions, "1FLUSH[0,4)"));
  CHECK(refusal(standalone, without).empty());
  CHECK(refusal(standalone, without, synchronous)
            .find("1FLUSH[0,4) is missing: a synchronous step ends all of its items") != std::string::npos);
}
