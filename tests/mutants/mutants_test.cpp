// Mutated goldens: what the check accepts runs under both transports, and what runs is accepted.

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "scheduler/check_schedule.h"
#include "tests/scheduler/helpers.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

struct Subject {
  std::string name;
  StageGraph graph;
  ir::Cluster cluster;
  Schedule schedule;
};

/// A chain with the stages where the golden has them.
StageGraph golden_study(const Schedule& golden) {
  int32_t stages = 0;
  int64_t micro_batches = 0;
  for (const ir::Program& program : golden.programs)
    for (const Action& a : program.actions) {
      stages = std::max(stages, a.stage + 1);
      micro_batches = std::max(micro_batches, a.range.last);
    }
  StageGraph graph = chain_study({.ranks = stages, .micro_batches = micro_batches});
  for (const ir::Program& program : golden.programs)
    for (const Action& a : program.actions)
      graph.stages[StageId(static_cast<size_t>(a.stage))].choice.devices = {program.device};
  return graph;
}

void add_subject(std::vector<Subject>& subjects, std::string name, StageGraph graph, const Schedule& compute) {
  const ir::Cluster cluster = study_cluster(static_cast<int>(compute.programs.size()), 0.25);
  const auto lowered = insert_transfers(graph, compute);
  REQUIRE(lowered.ok());
  subjects.push_back({std::move(name), std::move(graph), cluster, *lowered});
}

/// The small goldens of every family, and the schedules with two replicas or overlaps from their policies, whose orders
/// are those of the goldens.
std::vector<Subject> subjects() {
  std::vector<Subject> result;
  const char* files[] = {"generated/alpa_1f1b_overlap_friendly_p2_m4",
                         "generated/alpa_gpipe_p2_m4",
                         "generated/deepspeed_train_p2_m4",
                         "generated/deepspeed_train_p3_m4",
                         "generated/deepspeed_train_p4_m3",
                         "generated/megatron_interleaved_p2_v2_m5_g3",
                         "generated/sailsg_1f1b_p2_m4",
                         "generated/sailsg_groupinterleaved_g1_p2_v2_m4",
                         "generated/sailsg_v1f1b_p2_m4",
                         "generated/sailsg_vhalf_p2_m4",
                         "generated/sailsg_vmin_p2_m4",
                         "generated/sailsg_vpp_p2_v2_m4",
                         "generated/sailsg_zb1p_p2_m4",
                         "generated/sailsg_zb2p_p2_m4",
                         "generated/sailsg_zbv_p2_m4",
                         "generated/torchpp_interleaved1f1b_p4_v2_m3",
                         "derived/derived_gpipe_lifo_p4_m4",
                         "derived/derived_loopedbfs_p2_v2_m4",
                         "derived/derived_interleavedzb_p2_v2_m8",
                         "derived/derived_zbv_handcrafted_p4_m5",
                         "upstream/pytorch/zb1p_2rank_2stagep_compute"};
  for (const char* file : files)
    if (const auto csv = read_data(std::string(file) + ".csv")) {
      const Schedule golden = parse_csv(*csv);
      add_subject(result, file, golden_study(golden), golden);
    }
  for (const auto& [name, ranks, micro_batches] :
       {std::tuple("dualpipe", 2, 4), std::tuple("dualpipev", 2, 4), std::tuple("chimera", 4, 4)}) {
    const StageGraph graph = study_for(*find_policy(name), ranks, micro_batches);
    const auto compute = find_policy(name)->order({.graph = graph, .cluster = study_cluster(ranks)});
    add_subject(result, name, graph, *compute);
  }
  return result;
}

using Actions = std::vector<Action>;

void reverse_messages(Actions& list) {
  std::vector<size_t> messages;
  for (size_t i = 0; i < list.size(); ++i)
    if (ir::is_send(list[i].op) || ir::is_receive(list[i].op)) messages.push_back(i);
  for (size_t i = 0; i < messages.size() / 2; ++i)
    std::swap(list[messages[i]], list[messages[messages.size() - 1 - i]]);
}

void drop_receive(Actions& list, uint64_t number) {
  std::vector<size_t> receives;
  for (size_t i = 0; i < list.size(); ++i)
    if (ir::is_receive(list[i].op)) receives.push_back(i);
  if (!receives.empty()) list.erase(list.begin() + static_cast<ptrdiff_t>(receives[number % receives.size()]));
}

void move_action(Actions& list, size_t from, size_t to) {
  const Action action = list[from];
  list.erase(list.begin() + static_cast<ptrdiff_t>(from));
  list.insert(list.begin() + static_cast<ptrdiff_t>(to), action);
}

void mutate(Schedule& schedule, std::mt19937_64& random) {
  Actions& list = schedule.programs[random() % schedule.programs.size()].actions;
  const auto near = [&](size_t at) { return std::min(list.size() - 1, at + random() % 4); };
  const size_t at = random() % list.size();
  switch (random() % 16) {
    case 0:
      return reverse_messages(list);
    case 1:
      return drop_receive(list, random());
    case 2:
    case 3:
      return std::swap(list[at], list[random() % list.size()]);
    case 4:
    case 5:
      return move_action(list, at, random() % list.size());
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
      return move_action(list, at, near(at));
    default:
      return std::swap(list[at], list[near(at)]);
  }
}

}  // namespace

TEST_CASE("of 100,000 mutated goldens the check accepts exactly those that run to their end under both transports") {
  const std::vector<Subject> goldens = subjects();
  if (goldens.size() < 20) MESSAGE("SKIP: shared schedule data are absent, only policies are mutated");
  constexpr uint64_t kMutants = 100'000;
  int accepted = 0, refused = 0, wrong = 0;
  for (uint64_t seed = 0; seed < kMutants; ++seed) {
    const Subject& golden = goldens[seed % goldens.size()];
    std::mt19937_64 random(seed);
    Schedule mutant = golden.schedule;
    mutate(mutant, random);
    const Status verdict = check_schedule(golden.graph, golden.cluster, mutant);
    const auto buffered = simulate(golden.graph, golden.cluster, mutant);
    const bool runs = buffered.ok() && simulate(golden.graph, golden.cluster, mutant, {.rendezvous = true}).ok();
    ++(verdict.ok() ? accepted : refused);
    if (verdict.ok() == runs || ++wrong > 3) continue;
    INFO(golden.name << ", seed " << seed << "\n" << ir::print_schedule(mutant));
    INFO((verdict.ok() ? "" : verdict.problems().front().message));
    INFO((buffered.ok() ? "" : buffered.problems().front().message));
    FAIL_CHECK("the check and the simulator disagree");
  }
  MESSAGE(accepted << " of " << kMutants << " mutants accepted, " << refused << " refused, " << wrong << " wrongly");
  CHECK(wrong == 0);
  CHECK(accepted > 10'000);
  CHECK(refused > 10'000);
}
