// Mutated goldens: what the check accepts runs under both transports, and what runs is accepted.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <sstream>

#include "scheduler/standalone/infer_stages.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

struct Subject {
  std::string name;
  StageGraph graph;
  ir::Cluster cluster;
  Schedule schedule;
};

/// Every golden of expected.csv, with its messages: those of the golden where it has communication, else lowered.
std::vector<Subject> subjects() {
  std::vector<Subject> result;
  std::istringstream lines(read_schedule("expected.csv"));
  std::string line;
  std::getline(lines, line);
  for (; std::getline(lines, line);) {
    const std::string file = line.substr(0, line.find(','));
    Verdict verdict = complete_schedule(parse_csv(read_schedule(file)), EdgeNumbers::kChain, {.latency = 0.25});
    REQUIRE(verdict.whole.has_value());
    WholeSchedule& whole = *verdict.whole;
    result.push_back({file, std::move(whole.graph), std::move(whole.cluster), std::move(whole.schedule)});
  }
  return result;
}

/// Stages of unequal micro-batches, some with replicas, whose messages are cut and joined and whose step is flushed,
/// reduced and applied.
std::vector<Subject> mixed_subjects() {
  std::vector<Subject> result;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    StandaloneCase standalone = random_stages(seed, {.max_stages = 4});
    const auto compute = order_kfkb({.graph = standalone.graph, .cluster = standalone.cluster});
    REQUIRE(compute.ok());
    auto lowered = insert_transfers(standalone.graph, *compute);
    REQUIRE(lowered.ok());
    result.push_back(
        {text("mixed ", seed), std::move(standalone.graph), std::move(standalone.cluster), std::move(*lowered)});
  }
  return result;
}

size_t row_count(const Schedule& schedule) {
  size_t rows = 0;
  for (const ir::Program& program : schedule.programs) rows += program.actions.size();
  return rows;
}

/// Who is mutated when: all in turn, the short ones several times, so that each has a like share of the time.
std::vector<size_t> turns_of(const std::vector<Subject>& subjects) {
  size_t longest = 0;
  for (const Subject& subject : subjects) longest = std::max(longest, row_count(subject.schedule));
  std::vector<size_t> turns;
  for (size_t i = 0; i < subjects.size(); ++i)
    turns.insert(turns.end(), std::min<size_t>(40, longest / std::max<size_t>(1, row_count(subjects[i].schedule))), i);
  return turns;
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

enum class Mutation : uint8_t { kReverse, kDropReceive, kSwap, kMove };
constexpr std::array<std::string_view, 4> kMutationNames = {"messages reversed", "a receive dropped", "two swapped",
                                                            "one moved"};

Mutation mutate(Schedule& schedule, std::mt19937_64& random) {
  Actions* list = nullptr;
  while (list == nullptr || list->empty()) list = &schedule.programs[random() % schedule.programs.size()].actions;
  const size_t at = random() % list->size(), kind = random() % 16;
  // Neighbours more often than not: most other changes are refused at once.
  const size_t other = kind % 2 == 0 ? random() % list->size() : std::min(list->size() - 1, at + random() % 4);
  if (kind == 0) return reverse_messages(*list), Mutation::kReverse;
  if (kind == 1) return drop_receive(*list, random()), Mutation::kDropReceive;
  if (kind < 8) return move_action(*list, at, other), Mutation::kMove;
  return std::swap((*list)[at], (*list)[other]), Mutation::kSwap;
}

/// How often the check accepted and refused, by kind of mutation.
struct Tally {
  std::array<std::array<int, 2>, kMutationNames.size()> count{};
  int wrong = 0;

  int total(bool accepted) const {
    int sum = 0;
    for (const auto& kind : count) sum += kind[accepted];
    return sum;
  }
};

/// The check and the simulator must agree on every mutant.
Tally mutate_all(const std::vector<Subject>& subjects, uint64_t mutants) {
  const std::vector<size_t> turns = turns_of(subjects);
  Tally tally;
  for (uint64_t seed = 0; seed < mutants; ++seed) {
    const Subject& subject = subjects[turns[seed % turns.size()]];
    std::mt19937_64 random(seed);
    Schedule mutant = subject.schedule;
    const Mutation mutation = mutate(mutant, random);
    const CheckOptions options{.check_memory = false};
    const Status verdict = check_schedule(subject.graph, subject.cluster, mutant, options);
    const auto buffered = simulate(subject.graph, subject.cluster, mutant);
    const bool runs = buffered.ok() && simulate(subject.graph, subject.cluster, mutant, {.rendezvous = true}).ok();
    ++tally.count[static_cast<size_t>(mutation)][verdict.ok()];
    if (verdict.ok() == runs || ++tally.wrong > 3) continue;
    INFO(subject.name << ", seed " << seed << "\n" << ir::print_schedule(mutant));
    INFO((verdict.ok() ? "" : verdict.problems().front().message));
    INFO((buffered.ok() ? "" : buffered.problems().front().message));
    FAIL_CHECK("the check and the simulator disagree");
  }
  for (size_t kind = 0; kind < tally.count.size(); ++kind)
    MESSAGE(kMutationNames[kind] << ": " << tally.count[kind][1] << " accepted, " << tally.count[kind][0]
                                 << " refused");
  MESSAGE(subjects.size() << " schedules, " << mutants << " mutants: " << tally.total(true) << " accepted, "
                          << tally.total(false) << " refused, " << tally.wrong << " wrongly");
  return tally;
}

}  // namespace

TEST_CASE("of 100,000 mutated goldens the check accepts exactly those that run to their end under both transports") {
  const std::vector<Subject> goldens = subjects();
  REQUIRE(goldens.size() > 100);
  const Tally tally = mutate_all(goldens, 100'000);
  CHECK(tally.wrong == 0);
  CHECK(tally.total(true) > 10'000);
  CHECK(tally.total(false) > 10'000);
}

TEST_CASE("of 20,000 mutants with slices, concatenations, flushes and steps it accepts exactly those that run") {
  const Tally tally = mutate_all(mixed_subjects(), 20'000);
  CHECK(tally.wrong == 0);
  CHECK(tally.total(true) > 1'000);
  CHECK(tally.total(false) > 5'000);
}
