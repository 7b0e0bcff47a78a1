// The published numbers of Piper and of the equal split inside it: 25 GiB/s, all quirks on for the greedy column.

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "files/piper_profile.h"
#include "tests/profiles/shared_profiles.h"

namespace graphpipe::partitioner {
namespace {

constexpr double kGiB = 1 << 30;
/// What has no plan.
constexpr double kNone = -1;

struct PiperRow {
  int devices;
  double gib;
  int64_t micro_batches;
  double greedy, exact, equal_split;
};

Result<ir::ImportedProfile> profile(const char* name) {
  auto read = files::read_piper_profile(tests::data_path("piper/") + name);
  REQUIRE(read.ok());
  return read;
}

UnitRequest request_of(const tests::Priced& layers, const PiperRow& row) {
  UnitRequest request;
  request.prices = &layers.prices;
  request.machine.levels = {{.count = row.devices, .bandwidth = 25 * kGiB}};
  request.machine.memory = row.gib * kGiB;
  request.micro_batches = row.micro_batches;
  return request;
}

void check_value(const char* planner, const UnitRequest& request, double expected) {
  const PlannerEntry& row = *find_planner(planner);
  const auto answer = search_unit(row, request);
  CHECK(answer.ok() == (expected != kNone));
  if (!answer.ok()) return;
  CHECK(answer->objective == doctest::Approx(expected).epsilon(1e-6));
  CHECK(answer->bound <= answer->objective);
}

void check_rows(const char* file, std::initializer_list<PiperRow> rows) {
  const tests::Priced graph(profile(file));
  for (const PiperRow& row : rows) {
    CAPTURE(row.devices);
    CAPTURE(row.gib);
    CAPTURE(row.micro_batches);
    UnitRequest request = request_of(graph, row);
    request.compat = {"P5"};
    check_value("piper", request, row.exact);
    check_value("equal-split", request, row.equal_split);
    request.compat = {"E2", "P5"};
    check_value("2bw", request, row.equal_split);
    request.compat = {"P1", "P5"};
    check_value("piper", request, row.greedy);
  }
}

TEST_CASE("Piper on BERT-32 reaches the published values") {
  check_rows("bert32a100.json", {{8, 8, 1920, 0.16585575, 0.16585575, 0.230978},
                                 {32, 8, 1920, 0.0415154504, 0.0415154504, 0.0513510889},
                                 {64, 8, 1920, 0.0202005503, 0.0202005503, 0.0257245478},
                                 {128, 8, 1920, 0.0101208803, 0.0101208803, 0.0129112773},
                                 {64, 1, 1920, kNone, kNone, kNone},
                                 {64, 2, 1920, 0.0320300812, 0.0320300812, 0.12333875},
                                 {64, 80, 1920, 0.015650178, 0.015650178, 0.015650178},
                                 {64, 8, 512, 0.0209573379, 0.0209573379, 0.0291036869},
                                 {64, 8, 960, 0.0202348923, 0.0202348923, 0.0258143873}});
}

TEST_CASE("Piper on BERT-32 with hundreds of devices") {
  check_rows("bert32a100.json", {{512, 8, 1920, 0.00256112785, 0.00256112785, 0.00330132436},
                                 {1024, 8, 1920, 0.00130317952, 0.00130317952, 0.00169966554},
                                 {2048, 8, 1920, 0.000703591184, 0.000703591184, 0.000898836135}});
}

TEST_CASE("Piper on BERT-32 without replicas, and without tensor parallelism") {
  const tests::Priced graph(profile("bert32a100.json"));
  const PiperRow row{64, 8, 1920, 0, 0, 0};
  UnitRequest request = request_of(graph, row);
  request.compat = {"P1"};
  request.replication = false;
  check_value("piper", request, 0.07390625);
  request.replication = true;
  request.max_degree = 1;
  check_value("piper", request, 0.0202005503);
  request.replication = false;
  request.compat = {"E1", "E2"};
  request.max_degree = std::numeric_limits<int>::max();
  check_value("2bw", request, 0.0257245478);
}

TEST_CASE("2bw on BERT-32 in its own terms, as a separate program computes it from the paper's formulas") {
  const tests::Priced graph(profile("bert32a100.json"));
  struct Own {
    int devices;
    double gib;
    int64_t micro_batches;
    double units_per_second;
    size_t depth;
    bool recompute;
  };
  for (const Own& own : {Own{8, 8, 1920, 5.782649017058092, 8, true}, Own{32, 8, 1920, 23.130596068232368, 8, true},
                         Own{64, 8, 1920, 46.261192136464736, 8, true}, Own{64, 2, 1920, kNone, 0, false},
                         Own{64, 80, 1920, 65.78514571409777, 1, false}, Own{64, 8, 512, 46.261192136464736, 8, true},
                         Own{1024, 8, 1920, 740.1790741834358, 8, true}}) {
    CAPTURE(own.devices);
    CAPTURE(own.gib);
    CAPTURE(own.micro_batches);
    const UnitRequest request = request_of(graph, {own.devices, own.gib, own.micro_batches, 0, 0, 0});
    const auto answer = search_unit(*find_planner("2bw"), request);
    REQUIRE(answer.ok() == (own.units_per_second != kNone));
    if (!answer.ok()) continue;
    CHECK(answer->objective == doctest::Approx(own.units_per_second).epsilon(1e-12));
    CHECK(answer->bound == answer->objective);
    CHECK(answer->plan.choice.size() == own.depth);
    CHECK(answer->plan.alternative.empty() == !own.recompute);
  }
}

TEST_CASE("Piper on ResNet, milliseconds against bytes per second; the exact choice of variants beats the greedy one") {
  check_rows("resnet.json", {{32, 2, 7680, 24.6258985, 24.0313985, kNone}});
}

TEST_CASE("Piper on ResNet reaches the published values") {
  check_rows("resnet.json", {{8, 4, 7680, 73.493286, 73.493286, kNone},
                             {8, 8, 7680, 63.4335366, 63.4335366, 164.159281},
                             {16, 2, 7680, 76.5213125, 76.5213125, kNone},
                             {16, 8, 7680, 31.6343943, 31.6343943, 82.0796406},
                             {32, 8, 7680, 15.7580261, 15.7570729, 41.0398203},
                             {64, 2, 7680, 11.3337903, 11.3337903, kNone},
                             {128, 1, 7680, 19.8563286, 19.8563286, kNone},
                             {128, 16, 7680, 3.65985872, 3.65985872, 6.80533323}});
}

/// BERT-32 with copies of the layer before the last behind it, as the original's experiments enlarge it: the first
/// inner layer that its hash set lists (tests/scripts/equal_split_test.py derives it). The copies do not read the mask.
Result<ir::ImportedProfile> enlarged(int copies) {
  constexpr int kMask = 4, kBefore = 33, kCopied = 34, kBehind = 35, kFirstCopy = 37;
  nlohmann::json file = nlohmann::json::parse(tests::read_data("piper/bert32a100.json"));
  auto& nodes = file["nodes"];
  auto& edges = file["edges"];
  const auto rename = [](nlohmann::json& node, const char* side, int old, int now) {
    for (auto& [degree, variants] : node["TMPCs"].items())
      for (auto& variant : variants) {
        const nlohmann::json bytes = variant[side][std::to_string(old)];
        variant[side].erase(std::to_string(old));
        variant[side][std::to_string(now)] = bytes;
      }
  };
  const int last = kFirstCopy + copies - 1;
  nlohmann::json link;
  for (auto& edge : edges)
    if (edge["sourceId"] == kCopied && edge["destId"] == kBehind) {
      link = edge;
      edge["sourceId"] = last;
    }
  for (int id = kFirstCopy; id <= last; ++id) {
    nlohmann::json copy = nodes[kCopied];
    copy["id"] = id;
    for (auto& [degree, variants] : copy["TMPCs"].items())
      for (auto& variant : variants) variant["syncTimeFw"].erase(std::to_string(kMask));
    rename(copy, "syncTimeFw", kBefore, id == kFirstCopy ? kCopied : id - 1);
    if (id != last) rename(copy, "syncTimeBw", kBehind, id + 1);
    nodes.push_back(copy);
    link["sourceId"] = id == kFirstCopy ? kCopied : id - 1;
    link["destId"] = id;
    edges.push_back(link);
  }
  rename(nodes[kCopied], "syncTimeBw", kBehind, kFirstCopy);
  rename(nodes[kBehind], "syncTimeFw", kCopied, last);
  auto read = files::parse_piper_profile(file.dump());
  REQUIRE(read.ok());
  return read;
}

/// As the JSON text of the file, with the Pooler left out and the variants of every other layer turned round.
std::string changed_bert() {
  nlohmann::json file = nlohmann::json::parse(tests::read_data("piper/bert32a100.json"));
  constexpr int kPooler = 36;
  auto& nodes = file["nodes"];
  nodes.erase(nodes.end() - 1);
  auto& edges = file["edges"];
  nlohmann::json kept = nlohmann::json::array();
  for (const auto& edge : edges)
    if (edge["destId"] != kPooler) kept.push_back(edge);
  edges = kept;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (auto& [degree, variants] : nodes[i]["TMPCs"].items()) {
      for (auto& variant : variants) variant["syncTimeBw"].erase(std::to_string(kPooler));
      if (i % 2 == 1) std::reverse(variants.begin(), variants.end());
    }
  return file.dump();
}

TEST_CASE(
    "the equal split takes variants by name, and sets the layers before the repeated ones apart where none follows") {
  auto read = files::parse_piper_profile(changed_bert());
  REQUIRE(read.ok());
  const tests::Priced graph(std::move(read));
  // What a separate program finds by the rules of the original; with the quirk E3, which the last two need.
  for (const PiperRow& row :
       {PiperRow{64, 8, 1920, 0, 0, 0.02572454783153534}, PiperRow{512, 8, 1920, 0, 0, 0.0033013243635892867},
        PiperRow{128, 4, 1920, 0, 0, 0.01483031130743027}, PiperRow{64, 2, 1920, 0, 0, 0.12333875}}) {
    CAPTURE(row.devices);
    UnitRequest request = request_of(graph, row);
    request.compat = {"E3"};
    check_value("equal-split", request, row.equal_split);
    request.compat.clear();
    const auto without = search_unit(*find_planner("equal-split"), request);
    REQUIRE(without.ok());
    CHECK(without->objective <= row.equal_split * (1 + 1e-9));
  }
}

TEST_CASE("Piper on enlarged BERTs reaches the published values") {
  struct Enlarged {
    int copies;
    PiperRow row;
    int64_t downsets;
  };
  for (const Enlarged& bert : {Enlarged{32, {512, 80, 1920, 0.0041748489, 0, 0}, 75},
                               Enlarged{64, {2048, 80, 2048, 0.00171459121, 0, 0}, 107}}) {
    CAPTURE(bert.copies);
    const tests::Priced large(enlarged(bert.copies));
    UnitRequest request = request_of(large, bert.row);
    for (const char* compat : {"P1", ""}) {
      if (*compat != '\0') request.compat = {compat};
      else request.compat.clear();
      const auto answer = search_unit(*find_planner("piper"), request);
      REQUIRE(answer.ok());
      CHECK(answer->objective == doctest::Approx(bert.row.greedy).epsilon(1e-6));
      CHECK(answer->states == bert.downsets);
    }
  }
}

}  // namespace
}  // namespace graphpipe::partitioner
