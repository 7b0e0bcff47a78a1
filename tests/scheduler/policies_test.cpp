#include "scheduler/policies/policies.h"

#include <doctest/doctest.h>

#include "cost/lower_bound.h"
#include "tests/scheduler/helpers.h"

using namespace graphpipe;
using namespace graphpipe::tests;
using nlohmann::json;

namespace {

StageGraph dag_of(const json& j) {
  std::vector<StandaloneStage> stages;
  const size_t count = j.at("predecessors").size();
  int64_t batch = j.contains("batch") ? j.at("batch").get<int64_t>() : j.at("micro_batches").get<int64_t>();
  for (size_t s = 0; s < count; ++s) {
    StandaloneStage stage;
    for (const json& p : j.at("predecessors")[s]) stage.predecessors.push_back(StageId(p.get<size_t>()));
    double forward = 1, backward = 2;
    if (j.contains("cost_per_sample")) {
      forward = j["cost_per_sample"]["forward"].get<double>();
      backward = j["cost_per_sample"]["backward"].get<double>();
    } else if (j.contains("forward")) {
      forward = j["forward"][s].get<double>();
      backward = j["backward"][s].get<double>();
    }
    stage.forward = ir::SampleFunction::polynomial(0, forward);
    stage.input_gradient = ir::SampleFunction::polynomial(0, backward);
    stage.choice.devices = {ir::DeviceId(s)};
    if (j.contains("micro_batch_size")) stage.choice.micro_batch = Samples(j["micro_batch_size"][s].get<int64_t>());
    if (j.contains("k")) stage.choice.k = j["k"][s].get<int>();
    stages.push_back(std::move(stage));
  }
  return standalone_graph(stages, Samples(batch));
}

IdMap<StageId, Samples> samples_of(const json& list) {
  IdMap<StageId, Samples> numbers;
  for (const json& n : list) numbers.push_back(Samples(n.get<int64_t>()));
  return numbers;
}

double makespan(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& compute) {
  const Result<Schedule> lowered = insert_transfers(graph, compute);
  if (!lowered.ok()) FAIL(lowered.problems().front().message);
  const Result<Timeline> timeline = simulate(graph, cluster, *lowered, {.ticks_per_second = kTicksPerUnit});
  if (!timeline.ok()) FAIL(timeline.problems().front().message);
  return units(timeline->makespan);
}

}  // namespace

TEST_CASE("kfkb makes the lists and the makespan of every stage graph of the recorded files") {
  for (const char* name : {"chain4", "diamond", "diamond_mixed_b", "four_branches_tail", "graphpipe_fig5_like_chain",
                           "n_shape_non_sp", "skewed_diamond", "two_towers_join", "two_towers_mixed_b"}) {
    CAPTURE(name);
    const json j = read_json(std::string("derived/dag/") + name + ".json");
    const StageGraph graph = dag_of(j);
    const ir::Cluster cluster = standalone_cluster(static_cast<int>(graph.stages.size()));
    const auto schedule =
        order_kfkb({.graph = graph, .cluster = cluster, .in_flight = samples_of(j.at("inflight_samples"))});
    REQUIRE(schedule.ok());
    for (const StageId stage : graph.stage_ids())
      CHECK(stage_list(graph, *schedule, stage) == j.at("lists")[stage.index()].get<std::vector<std::string>>());
    CHECK(makespan(graph, cluster, *schedule) == doctest::Approx(j.at("makespan").get<double>()));
  }
}

TEST_CASE("without given numbers kfkb reaches the full rate of the recorded stage graphs") {
  for (const char* name : {"chain4", "diamond", "diamond_mixed_b", "four_branches_tail", "graphpipe_fig5_like_chain",
                           "n_shape_non_sp", "skewed_diamond", "two_towers_join", "two_towers_mixed_b"}) {
    CAPTURE(name);
    const json j = read_json(std::string("derived/dag/") + name + ".json");
    const StageGraph graph = dag_of(j);
    const ir::Cluster cluster = standalone_cluster(static_cast<int>(graph.stages.size()));
    const auto schedule = order_kfkb({.graph = graph, .cluster = cluster});
    REQUIRE(schedule.ok());
    CHECK(makespan(graph, cluster, *schedule) == doctest::Approx(j.at("makespan").get<double>()));
    CHECK(cost::step_bound(graph, cluster).total() == doctest::Approx(j.at("lower_bound").get<double>()));
    for (const StageId stage : graph.stage_ids())
      CHECK(stage_list(graph, *schedule, stage) == j.at("lists")[stage.index()].get<std::vector<std::string>>());
  }
}

TEST_CASE("kfkb has the in-flight numbers of the latency cases, raised where that is faster; with given ones theirs") {
  int raised = 0;
  for (const json& j : read_json("derived/dag/inflight_rule_cases.json")) {
    CAPTURE(j.dump());
    const StageGraph graph = dag_of(j);
    const ir::Cluster cluster =
        standalone_cluster(static_cast<int>(graph.stages.size()), j.at("latency").get<double>());
    const auto schedule = order_kfkb({.graph = graph, .cluster = cluster});
    REQUIRE(schedule.ok());
    const auto by_rule = j.at("in_flight").get<std::vector<int>>(), numbers_of_order = peak_in_flight(*schedule, false);
    const double time = makespan(graph, cluster, *schedule), time_by_rule = j.at("makespan").get<double>();
    if (numbers_of_order == by_rule) {
      CHECK(time == doctest::Approx(time_by_rule));
    } else {
      ++raised;
      for (size_t stage = 0; stage < by_rule.size(); ++stage) CHECK(numbers_of_order[stage] >= by_rule[stage]);
      CHECK(time < 0.99 * time_by_rule);
    }
    const double bound = cost::step_bound(graph, cluster).total();
    CHECK(bound == doctest::Approx(j.at("lower_bound").get<double>()));
    CHECK(bound <= time * (1 + 1e-9));
    for (const auto& [numbers, expected] :
         {std::pair("in_flight", "makespan"), std::pair("depth_rule", "makespan_depth_rule")}) {
      const auto given = order_kfkb({.graph = graph, .cluster = cluster, .in_flight = samples_of(j.at(numbers))});
      REQUIRE(given.ok());
      CHECK(makespan(graph, cluster, *given) == doctest::Approx(j.at(expected).get<double>()));
    }
  }
  CHECK(raised > 0);
}

TEST_CASE("gpipe and kfkb order chains as the reference generators do") {
  struct Case {
    const char* file;
    bool gpipe, lifo;
    int factor;  // in-flight = min(factor (P - r) - (factor - 1), M)
  };
  for (const Case& c :
       {Case{"derived/derived_gpipe_fifo_p4_m4", true, false, 0},
        Case{"derived/derived_gpipe_fifo_p8_m16", true, false, 0},
        Case{"derived/derived_gpipe_lifo_p4_m4", true, true, 0}, Case{"generated/alpa_gpipe_p4_m8", true, false, 0},
        Case{"derived/derived_dapple_pa_p8_m16", false, false, 1},
        Case{"derived/derived_dapple_pb_p8_m16", false, false, 2},
        Case{"generated/alpa_1f1b_overlap_friendly_p4_m8", false, false, 2},
        Case{"generated/alpa_1f1b_p4_m8", false, false, 1}, Case{"generated/deepspeed_train_p4_m3", false, false, 1},
        Case{"generated/deepspeed_train_p8_m16", false, false, 1},
        Case{"generated/sailsg_1f1b_p8_m24", false, false, 1}}) {
    CAPTURE(c.file);
    const Schedule golden = parse_csv(read_schedule(std::string(c.file) + ".csv"));
    int64_t micro_batches = 0;
    for (const Action& a : golden.programs[0].actions) micro_batches += a.op == ActionOp::kForward;
    const int ranks = static_cast<int>(golden.programs.size());
    const StageGraph graph = chain_stages({.ranks = ranks, .micro_batches = micro_batches});
    const ir::Cluster cluster = standalone_cluster(ranks);
    PolicyRequest request{.graph = graph, .cluster = cluster, .in_flight = depth_numbers(graph)};
    for (Samples& n : request.in_flight) n = Samples(c.factor * n.count - (c.factor - 1));
    if (c.lifo) request.choices.backward_order = BackwardOrder::kLifo;
    const auto schedule = c.gpipe ? order_gpipe(request) : order_kfkb(request);
    REQUIRE(schedule.ok());
    for (int r = 0; r < ranks; ++r)
      CHECK(tokens(schedule->programs[static_cast<size_t>(r)]) == tokens(golden.programs[static_cast<size_t>(r)]));
  }
}

namespace {

struct Golden {
  const char* file;
  const char* policy;
  int chunks = 1;
  int64_t group = 0;
  bool v_shape = false;
};

void compare(const Golden& golden) {
  CAPTURE(golden.file);
  const Schedule expected = parse_csv(read_schedule(std::string(golden.file) + ".csv"));
  int64_t micro_batches = 0;
  for (const ir::Program& program : expected.programs)
    for (const Action& a : program.actions) micro_batches = std::max(micro_batches, a.range.last);
  const int ranks = static_cast<int>(expected.programs.size());
  const StageGraph graph = chain_stages(
      {.ranks = ranks, .chunks = golden.chunks, .micro_batches = micro_batches, .v_shape = golden.v_shape});
  const ir::Cluster cluster = standalone_cluster(ranks);
  const auto schedule =
      find_policy(golden.policy)->order({.graph = graph, .cluster = cluster, .choices = {.group = golden.group}});
  if (!schedule.ok()) FAIL(schedule.problems().front().message);
  for (int r = 0; r < ranks; ++r)
    CHECK(tokens(schedule->programs[static_cast<size_t>(r)]) == tokens(expected.programs[static_cast<size_t>(r)]));
  CHECK(makespan(graph, cluster, *schedule) > 0);
}

}  // namespace

TEST_CASE("the policies order actions exactly as the reference generators do") {
  for (const Golden& golden : {
           Golden{"generated/deepspeed_train_p4_m4", "1f1b"},
           Golden{"generated/sailsg_1f1b_p4_m12", "1f1b"},
           Golden{"derived/derived_dapple_pa_p4_m4", "dapple-a"},
           Golden{"derived/derived_dapple_pb_p8_m16", "dapple-b"},
           Golden{"generated/alpa_1f1b_overlap_friendly_p4_m8", "dapple-b"},
           Golden{"generated/sailsg_zb1p_p2_m4", "zb-1p"},
           Golden{"generated/sailsg_zb1p_p4_m8", "zb-1p"},
           Golden{"generated/sailsg_zb1p_p4_m12", "zb-1p"},
           Golden{"generated/sailsg_zb1p_p8_m24", "zb-1p"},
           Golden{"derived/derived_interleavedzb_p4_v1_m8", "interleaved-zb"},
           Golden{"derived/derived_interleavedzb_p2_v2_m8", "interleaved-zb", 2},
           Golden{"derived/derived_interleavedzb_p4_v2_m8", "interleaved-zb", 2},
           Golden{"derived/derived_interleavedzb_p4_v3_m12", "interleaved-zb", 3},
           Golden{"generated/torchpp_interleaved1f1b_p2_v2_m4", "interleaved", 2},
           Golden{"generated/torchpp_interleaved1f1b_p4_v2_m3", "interleaved", 2},
           Golden{"generated/torchpp_interleaved1f1b_p4_v2_m10", "interleaved", 2},
           Golden{"generated/torchpp_interleaved1f1b_p4_v3_m12", "interleaved", 3},
           Golden{"generated/torchpp_interleaved1f1b_p8_v2_m16", "interleaved", 2},
           Golden{"generated/sailsg_vpp_p4_v3_m12", "interleaved", 3},
           Golden{"generated/sailsg_vpp_p8_v3_m24", "interleaved", 3},
           Golden{"generated/megatron_interleaved_p2_v2_m5_g3", "interleaved", 2, 3},
           Golden{"generated/megatron_interleaved_p4_v3_m12_g6", "interleaved", 3, 6},
           Golden{"generated/megatron_interleaved_p4_v2_m8_g4", "interleaved", 2, 4},
           Golden{"derived/derived_loopedbfs_p2_v2_m4", "looped-bfs", 2},
           Golden{"derived/derived_loopedbfs_p4_v3_m8", "looped-bfs", 3},
           Golden{"derived/derived_zbv_handcrafted_p2_m4", "zb-v", 2, 0, true},
           Golden{"derived/derived_zbv_handcrafted_p4_m5", "zb-v", 2, 0, true},
           Golden{"derived/derived_zbv_handcrafted_p4_m8", "zb-v", 2, 0, true},
           Golden{"derived/derived_zbv_handcrafted_p8_m16", "zb-v", 2, 0, true},
       })
    compare(golden);
}

TEST_CASE("zero bubble on stage graphs: lists, makespans and peaks of the recorded cases") {
  const auto run = [](const json& j, double forward, double input, double weight, const char* policy) {
    StageGraph graph = dag_of(j);
    for (ir::Stage& stage : graph.stages) {
      stage.forward = ir::SampleFunction::polynomial(0, forward);
      stage.input_gradient = ir::SampleFunction::polynomial(0, input);
      stage.weight_gradient = ir::SampleFunction::polynomial(0, weight);
    }
    const ir::Cluster cluster = standalone_cluster(static_cast<int>(graph.stages.size()));
    const auto schedule = find_policy(policy)->order({.graph = graph, .cluster = cluster});
    REQUIRE(schedule.ok());
    return std::pair(*schedule, makespan(graph, cluster, *schedule));
  };
  for (const json& j : read_json("derived/dag/zb_on_dag_cases.json")) {
    CAPTURE(j.dump());
    const auto [schedule, time] = run(j, 1, 1, 1, "zb-1p");
    CHECK(time == doctest::Approx(j.at("makespan_F1I1W1").get<double>()));
    CHECK(peak_in_flight(schedule, false) == j.at("peak_F_to_W").get<std::vector<int>>());
    CHECK(run(j, 1, 2, 0, "1f1b").second == doctest::Approx(j.at("makespan_unsplit_F1B2").get<double>()));
  }
  const json j = read_json("derived/dag/chain4.json");
  const auto [schedule, time] = run(j, 1, 1, 1, "zb-1p");
  const StageGraph graph = dag_of(j);
  for (const StageId stage : graph.stage_ids())
    CHECK(stage_list(graph, schedule, stage) ==
          j.at("zb_h1_on_dag").at("lists")[stage.index()].get<std::vector<std::string>>());
}

TEST_CASE("policies that need a chain of chunks say what is wrong with another graph") {
  const ir::Cluster cluster = standalone_cluster(4);
  StageGraph graph = chain_stages({.ranks = 2, .chunks = 2, .micro_batches = 4});
  CHECK(order_interleaved({.graph = graph, .cluster = cluster}).ok());
  CHECK(!order_interleaved({.graph = graph, .cluster = cluster, .choices = {.group = 1}}).ok());
  CHECK(!order_zb_v({.graph = graph, .cluster = cluster}).ok());
  graph.stages[StageId(1)].choice.micro_batch = Samples(2);
  CHECK(!order_interleaved({.graph = graph, .cluster = cluster}).ok());
  const StageGraph odd = chain_stages({.ranks = 4, .chunks = 2, .micro_batches = 7});
  CHECK(!order_interleaved({.graph = odd, .cluster = cluster, .choices = {.group = 4}}).ok());
}
