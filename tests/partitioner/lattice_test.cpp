#include <doctest/doctest.h>

#include <set>

#include "partitioner/graph/downset_lattice.h"
#include "tests/support/random_layers.h"

namespace graphpipe::partitioner {
namespace {

Dag random_dag(uint64_t seed, size_t nodes) {
  tests::Dice dice(seed);
  EdgeList edges;
  for (const auto& [from, to] : tests::random_layer_edges(dice, nodes, 3))
    edges.emplace_back(static_cast<uint32_t>(from), static_cast<uint32_t>(to));
  return Dag(nodes, edges);
}

bool is_downset(const Dag& dag, uint64_t bits) {
  for (uint32_t node = 0; node < dag.size(); ++node)
    if (bits >> node & 1)
      for (const uint32_t from : dag.predecessors(node))
        if (!(bits >> from & 1)) return false;
  return true;
}

Dag branches(size_t count, size_t length) {
  EdgeList edges;
  for (uint32_t b = 0; b < count; ++b)
    for (uint32_t i = 1; i < length; ++i)
      edges.emplace_back(b * static_cast<uint32_t>(length) + i - 1, b * static_cast<uint32_t>(length) + i);
  return Dag(count * length, edges);
}

TEST_CASE("the lattice holds every downset once, supersets behind subsets, and walks meet every nested pair once") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const Dag dag = random_dag(seed, 1 + seed % 9);
    const auto lattice = Lattice::enumerate(dag);
    REQUIRE(lattice.has_value());
    std::vector<uint64_t> sets;
    for (uint64_t bits = 0; bits < uint64_t{1} << dag.size(); ++bits)
      if (is_downset(dag, bits)) sets.push_back(bits);
    std::set<uint64_t> found;
    for (uint32_t set = 0; set < lattice->size(); ++set) {
      found.insert(lattice->bits(set)[0]);
      for (const Lattice::Step& step : lattice->up(set)) {
        CHECK(step.set > set);
        CHECK((lattice->bits(set)[0] | uint64_t{1} << step.node) == lattice->bits(step.set)[0]);
      }
    }
    CHECK(lattice->size() == sets.size());
    CHECK(found.size() == sets.size());
    LatticeWalk walk(*lattice);
    uint64_t pairs = 0;
    for (uint32_t set = 0; set < lattice->size(); ++set) {
      uint64_t difference = 0;
      std::set<uint32_t> met;
      ++pairs;
      walk.down(
          set,
          [&](uint32_t below, uint32_t node) {
            difference |= uint64_t{1} << node;
            CHECK((lattice->bits(below)[0] | difference) == lattice->bits(set)[0]);
            CHECK((lattice->bits(below)[0] & difference) == 0);
            CHECK(met.insert(below).second);
            ++pairs;
            return true;
          },
          [&](uint32_t node) { difference &= ~(uint64_t{1} << node); });
      CHECK(difference == 0);
    }
    uint64_t expected = 0;
    for (const uint64_t small : sets)
      for (const uint64_t large : sets) expected += (small & large) == small ? 1 : 0;
    CHECK(pairs == expected);
    CHECK(lattice->nested_pairs(1'000'000) == expected);
    if (expected > 1) CHECK_FALSE(lattice->nested_pairs(expected - 1).has_value());
  }
}

TEST_CASE("sizes of known lattices, and limits") {
  CHECK(Lattice::enumerate(branches(1, 70))->size() == 71);
  CHECK(Lattice::enumerate(branches(3, 20))->size() == 9261);
  CHECK_FALSE(Lattice::enumerate(branches(3, 20), {.max_sets = 9000}).has_value());
  CHECK_FALSE(Lattice::enumerate(branches(8, 4), {.stop = [] { return true; }}).has_value());
}

TEST_CASE("a beam holds downsets only, as many of a size as allowed, and the prefixes of the order") {
  const Dag dag = branches(8, 4);
  std::vector<uint32_t> order(32);
  for (uint32_t i = 0; i < 32; ++i) order[i] = i;
  const auto rank = [](std::span<const uint64_t> bits) { return static_cast<double>(bits[0] % 7); };
  const auto beam = Lattice::beam(dag, 50, order, rank);
  REQUIRE(beam.has_value());
  CHECK_FALSE(beam->complete());
  std::vector<size_t> of_size(33, 0);
  std::set<uint64_t> sets;
  for (uint32_t set = 0; set < beam->size(); ++set) {
    CHECK(is_downset(dag, beam->bits(set)[0]));
    sets.insert(beam->bits(set)[0]);
    ++of_size[beam->cardinality(set)];
    for (const Lattice::Step& step : beam->up(set))
      CHECK((beam->bits(set)[0] | uint64_t{1} << step.node) == beam->bits(step.set)[0]);
  }
  CHECK(sets.size() == beam->size());
  for (size_t size = 0; size <= 32; ++size) {
    CHECK(of_size[size] <= 50);
    CHECK(sets.contains(size == 64 ? ~uint64_t{0} : (uint64_t{1} << size) - 1));
  }
  const auto whole = Lattice::beam(dag, 1'000'000, order, rank);
  CHECK(whole->complete());
  CHECK(whole->size() == 390'625);
}

TEST_CASE("last in, first out: readers become free in the order of the edges") {
  CHECK(last_in_first_out_order(4, {{0, 1}, {0, 2}, {2, 3}}) == std::vector<uint32_t>{0, 2, 3, 1});
  CHECK(last_in_first_out_order(4, {{0, 2}, {0, 1}, {2, 3}, {2, 3}}) == std::vector<uint32_t>{0, 1, 2, 3});
  const Dag chain = chained(branches(2, 2), std::vector<uint32_t>{0, 2, 1, 3});
  CHECK(Lattice::enumerate(chain)->size() == 5);
}

}  // namespace
}  // namespace graphpipe::partitioner
