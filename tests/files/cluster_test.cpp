#include "files/cluster.h"

#include <doctest/doctest.h>

#include <random>

namespace graphpipe::files {
namespace {

std::string cluster_text(std::string_view from = "", std::string_view to = "") {
  std::string text = R"({"schema": "graphpipe.cluster/1",
 "devices": [
  {"name": "a", "host": 0, "memory_bytes": 17179869184, "flops_per_second": 5e10, "memory_bytes_per_second": 1e10},
  {"name": "b", "host": 1, "memory_bytes": 1.6e10, "flops_per_second": 5e10, "memory_bytes_per_second": 1e10,
   "launch_overhead_seconds": 1e-6}],
 "levels": [{"group": 2, "latency_seconds": 5e-6, "bytes_per_second": 5e9}]})";
  if (!from.empty()) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
  }
  return text;
}

void check_cluster_refused(std::string_view from, std::string_view to, std::string_view expected,
                           Code code = Code::kBadCluster) {
  const Result<ir::Cluster> cluster = parse_cluster(cluster_text(from, to));
  CAPTURE(to);
  REQUIRE_FALSE(cluster.ok());
  CAPTURE(cluster.problems()[0].message);
  CHECK(cluster.problems()[0].message.find(expected) != std::string::npos);
  CHECK(cluster.problems()[0].code == code);
}

TEST_CASE("a cluster that is written reads back the same, to the last bit") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> unit(0.1, 1);
    ir::Cluster cluster;
    const int devices = 1 << (seed % 4);
    for (int i = 0; i < devices; ++i)
      cluster.devices.push_back({.name = ModelText("gpu\\" + std::to_string(i)),
                                 .host = i / 2,
                                 .memory = Bytes(static_cast<int64_t>(random() >> 20) + 1),
                                 .compute = FlopsPerSecond(unit(random) * 1e14),
                                 .convolution = FlopsPerSecond(i % 2 * unit(random) * 1e14),
                                 .winograd = FlopsPerSecond(i % 5 * unit(random) * 1e14),
                                 .depthwise = FlopsPerSecond(i % 4 * unit(random) * 1e14),
                                 .attention = FlopsPerSecond(i % 3 * unit(random) * 1e14),
                                 .functions = FlopsPerSecond(i % 7 * unit(random) * 1e14),
                                 .bfloat16 = {.products = FlopsPerSecond(i % 2 * unit(random) * 1e15),
                                              .attention = FlopsPerSecond(i % 3 * unit(random) * 1e15)},
                                 .float16 = {.convolution = FlopsPerSecond(i % 4 * unit(random) * 1e15)},
                                 .memory_bandwidth = BytesPerSecond(unit(random) * 1e12),
                                 .weight_bandwidth = BytesPerSecond(i % 2 * unit(random) * 1e12),
                                 .launch_overhead = Seconds(unit(random) * 1e-5)});
    for (int group = 2; group <= devices; group *= 2)
      cluster.levels.push_back(
          {.group = group, .latency = Seconds(unit(random) / 3), .bandwidth = BytesPerSecond(unit(random) * 1e9)});
    const Result<ir::Cluster> again = parse_cluster(print_cluster(cluster));
    REQUIRE(again.ok());
    CHECK(*again == cluster);
  }
}

TEST_CASE("impossible numbers, wrong units and bad groups are refused with the path") {
  REQUIRE(parse_cluster(cluster_text()).ok());
  CHECK(parse_cluster(cluster_text())->devices[ir::DeviceId(1)].memory == Bytes(16000000000));
  check_cluster_refused("1.6e10", "-1", "devices[1].memory_bytes: must be above 0");
  check_cluster_refused("1.6e10", "1e30", "devices[1].memory_bytes: must be above 0 and at most");
  check_cluster_refused("1.6e10", "10.5", "devices[1].memory_bytes: must be whole");
  check_cluster_refused("5e10", "0", "devices[0].flops_per_second: must be from 1e-24 to 1e+24, is 0");
  // Times of such a rate are no finite numbers, and a search among them did not end.
  check_cluster_refused("5e10", "1e-300", "devices[0].flops_per_second: must be from 1e-24 to 1e+24, is 1e-300");
  check_cluster_refused("5e9", "1e-300", "levels[0].bytes_per_second: must be from 1e-24");
  check_cluster_refused("5e10", "5e10, \"winograd_flops_per_second\": 1e-300", "devices[0].winograd_flops_per_second");
  check_cluster_refused("5e10", "5e10, \"attention_flops_per_second\": -1", "devices[0].attention_flops_per_second");
  check_cluster_refused("5e10", "5e10, \"depthwise_flops_per_second\": -1", "devices[0].depthwise_flops_per_second");
  check_cluster_refused("5e10", "5e10, \"function_flops_per_second\": 1e-300", "devices[0].function_flops_per_second");
  check_cluster_refused("5e10", "5e10, \"bfloat16\": {\"flops_per_second\": -1}",
                        "devices[0].bfloat16.flops_per_second");
  check_cluster_refused("5e10", "5e10, \"float16\": {\"convolution_flops_per_second\": 1e-300}",
                        "devices[0].float16.convolution_flops_per_second");
  check_cluster_refused("5e10", "5e10, \"float16\": {\"attention_flops_per_second\": \"fast\"}",
                        "devices[0].float16.attention_flops_per_second: must be a number", Code::kMalformedFile);
  check_cluster_refused("5e10", "5e10, \"weight_bytes_per_second\": -1", "devices[0].weight_bytes_per_second");
  check_cluster_refused("1e-6", "-1e-6", "devices[1].launch_overhead_seconds");
  check_cluster_refused("\"group\": 2", "\"group\": 0", "levels[0].group: must be a multiple");
  check_cluster_refused("\"levels\": [", "\"levels\": [{\"group\": 3, \"bytes_per_second\": 1}, ", "levels[1].group");
  check_cluster_refused("5e-6", "-1", "levels[0].latency_seconds");
  check_cluster_refused("5e9", "0", "levels[0].bytes_per_second");
  check_cluster_refused("memory_bytes\": 17179869184", "memory_gb\": 16", "devices[0].memory_gb: unknown field",
                        Code::kMalformedFile);
  check_cluster_refused("17179869184", "\"16 GiB\"", "devices[0].memory_bytes: must be a number", Code::kMalformedFile);
  check_cluster_refused("5e9", "\"Infinity\"", "levels[0].bytes_per_second: must be a number", Code::kMalformedFile);
  check_cluster_refused("5e9", "NaN", "not JSON", Code::kMalformedFile);
  const Result<ir::Cluster> empty = parse_cluster(R"({"schema": "graphpipe.cluster/1"})");
  REQUIRE_FALSE(empty.ok());
  CHECK(empty.problems()[0].message.find("devices: is empty") == 0);
}

TEST_CASE("of a thousand impossible devices the first problems are told") {
  std::string devices = "{}";
  for (int i = 1; i < 1000; ++i) devices += ", {}";
  const auto refused = parse_cluster(R"({"schema": "graphpipe.cluster/1", "devices": [)" + devices + "]}");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.problems().size() == kMaxProblems);
  CHECK(refused.problems().front().message.starts_with("devices[0]."));
}

TEST_CASE("the last level must join all devices") {
  std::string three = cluster_text("\"devices\": [",
                                   "\"devices\": [{\"memory_bytes\": 1, \"flops_per_second\": 1, "
                                   "\"memory_bytes_per_second\": 1},");
  const Result<ir::Cluster> cluster = parse_cluster(three);
  REQUIRE_FALSE(cluster.ok());
  CHECK(cluster.problems()[0].message.find("levels: the last level groups 2 devices; it must cover all 3") == 0);
}

TEST_CASE("the last host may have fewer devices than the others") {
  const auto with_levels = [](int devices, int host, int all) {
    std::string text = R"({"schema": "graphpipe.cluster/1", "devices": [)";
    for (int i = 0; i < devices; ++i)
      text +=
          std::string(i > 0 ? "," : "") + R"({"memory_bytes": 1, "flops_per_second": 1, "memory_bytes_per_second": 1})";
    text += R"(], "levels": [{"group": )" + std::to_string(host) + R"(, "bytes_per_second": 2}, {"group": )" +
            std::to_string(all) + R"(, "bytes_per_second": 1}]})";
    return parse_cluster(text);
  };
  const Result<ir::Cluster> cluster = with_levels(12, 8, 12);
  REQUIRE(cluster.ok());
  CHECK(*cluster == *with_levels(12, 8, 16));
  CHECK(*cluster == *parse_cluster(print_cluster(*cluster)));
  CHECK(cluster->link_between(ir::DeviceId(0), ir::DeviceId(7)).level == 0);
  CHECK(cluster->link_between(ir::DeviceId(7), ir::DeviceId(8)).level == 1);
  CHECK(cluster->link_between(ir::DeviceId(8), ir::DeviceId(11)).level == 0);
  CHECK_FALSE(with_levels(16, 8, 12).ok());
  CHECK_FALSE(with_levels(2, 8, 4).ok());
  CHECK_FALSE(with_levels(12, 8, 2147483647).ok());
}

}  // namespace
}  // namespace graphpipe::files
