// The acceptance numbers of DAPPLE and torchgpipe on PipeDream's profiles (docs/planners.md, section 11).

#include <doctest/doctest.h>

#include "partitioner/torchgpipe/planner.h"
#include "tests/profiles/shared_profiles.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;

namespace {

double speed_up(const UnitPrices& prices, const std::vector<int>& machines, bool compat) {
  UnitRequest request;
  request.prices = &prices;
  request.machine.levels = {{.count = machines.back(), .bandwidth = 1e9}};
  request.machines = machines;
  const PlannerEntry& row = *find_planner("dapple");
  if (compat) request.compat = *parse_compat(row, "all");
  const auto answer = search_unit(row, request);
  if (!answer.ok()) FAIL(answer.problems().front().message);
  CHECK(answer->objective <= answer->bound);
  return answer->objective;
}

}  // namespace

TEST_CASE("DAPPLE's speed-ups are reproduced, and not smaller without its quirks") {
  struct Row {
    std::string profile;
    std::vector<int> machines;
    double expected;
  };
  const std::vector<Row> rows = {
      {"vgg16", {4}, 3.536156},
      {"vgg16", {8}, 6.363345},
      {"vgg16", {2, 4, 6, 8}, 5.369081},
      {"vgg16", {8, 16}, 7.977906},
      {"squeezenet1_0", {4}, 3.555141},
      {"squeezenet1_0", {8}, 6.399216},
      {"squeezenet1_0", {2, 4, 6, 8}, 6.373974},
      {"squeezenet1_0", {8, 16}, 10.589455},
      {"resnet50", {8}, 6.389688},
      {"densenet121", {8}, 6.395619},
  };
  for (const Row& row : rows) {
    CAPTURE(row.profile);
    CAPTURE(row.expected);
    const tests::Priced layers(tests::pipedream_profile(row.profile));
    CHECK(speed_up(layers.prices, row.machines, true) == doctest::Approx(row.expected).epsilon(1e-4));
    if (layers.prices.size() < 100) CHECK(speed_up(layers.prices, row.machines, false) >= row.expected * (1 - 1e-9));
  }
}

TEST_CASE("torchgpipe's blocks are reproduced, with the exact minimum as bound") {
  struct Row {
    std::string profile;
    // Heaviest blocks and exact minima for 2, 4, 8, 16 parts, microseconds; negative: it depends on the order.
    std::vector<double> heaviest, minima;
  };
  const std::vector<Row> rows = {
      {"alexnet", {54252, 40911, 30267, 28721}, {43075, 28721, 28721, 28721}},
      {"vgg16", {412969, 235590, 178671, 159531}, {370931, 216450, 159531, 159531}},
      {"squeezenet1_0", {163353, 103082, 76270, 58559}, {-148970, -75336, 51094, 51094}},
      {"densenet121", {166362, 86996, 44294, 26005}, {163085, 81985, 41615, 21165}},
      {"resnet50", {224935, 119082, 64204, -33947}, {221933, 111497, -59091, -31504}},
      {"resnet101", {208732, 107152, 56684, -30837}, {206130, 103941, 52125, -26363}},
      {"gnmt_large", {-286727, -167597, 107325, 77170}, {263353, 137129, 82845, 76825}},
      {"inception_v3", {-364140, -199255, 117794, -73190}, {-352605, 177874, -92835, -47156}},
      {"nasnetalarge", {-331972, -168602, -86855, -43685}, {-329196, -164838, -82572, -41573}},
  };
  const auto near = [](double value, double expected) {
    if (expected > 0) CHECK(value == expected);
    else CHECK(std::abs(value + expected) <= 0.1 * -expected);
  };
  for (const Row& row : rows) {
    CAPTURE(row.profile);
    const tests::Priced layers(tests::pipedream_profile(row.profile));
    for (size_t i = 0; i < 4; ++i) {
      UnitRequest request;
      request.prices = &layers.prices;
      request.machine.levels = {{.count = 2 << i, .bandwidth = 1e9}};
      const auto answer = search_unit(*find_planner("torchgpipe"), request);
      if (!answer.ok()) FAIL(answer.problems().front().message);
      near(answer->objective, row.heaviest[i]);
      near(answer->bound, row.minima[i]);
    }
  }
}
