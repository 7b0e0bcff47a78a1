#include "ir/cluster.h"

#include <doctest/doctest.h>

using namespace graphpipe;
using ir::DeviceId;

namespace {
/// Two hosts of two devices.
ir::Cluster two_hosts() {
  ir::Cluster cluster = ir::equal_devices(4);
  cluster.levels = {{.group = 2, .latency = Seconds(1e-6), .bandwidth = BytesPerSecond(1e10)},
                    {.group = 4, .latency = Seconds(1e-5), .bandwidth = BytesPerSecond(1e9)}};
  return cluster;
}
DeviceId device(size_t index) { return DeviceId(index); }
}  // namespace

TEST_CASE("two devices talk over the innermost level that holds both") {
  const ir::Cluster cluster = two_hosts();
  CHECK(cluster.link(device(0), device(1)).group == 2);
  CHECK(cluster.link(device(1), device(2)).group == 4);
  CHECK(cluster.link(device(2), device(3)).group == 2);
}

TEST_CASE("a link leads from one group of the level below to another, and another one back") {
  ir::Cluster cluster = ir::equal_devices(8);
  for (const int group : {2, 4, 8}) cluster.levels.push_back({.group = group});
  cluster.levels.erase(cluster.levels.begin());
  const auto link = [&](size_t from, size_t to) { return cluster.link_between(device(from), device(to)); };
  CHECK(link(2, 3) == ir::LinkId{.level = 0, .from = 2, .to = 3});
  CHECK(link(1, 2) == ir::LinkId{.level = 1, .from = 0, .to = 1});
  CHECK(link(3, 4) == ir::LinkId{.level = 2, .from = 0, .to = 1});
  CHECK(link(0, 7) == link(3, 4));
  CHECK(link(7, 0) == link(0, 7).reversed());
  CHECK(link(7, 0) != link(0, 7));
  // The last level holds all, whatever it says.
  cluster.levels.pop_back();
  CHECK(link(0, 7) == ir::LinkId{.level = 1, .from = 0, .to = 3});
}

TEST_CASE("an all-reduce costs what a ring costs over its slowest link, and the additions") {
  const ir::Cluster cluster = two_hosts();  // 10 GB/s of memory traffic
  const Bytes megabyte(1000000);
  // Two rounds of half a megabyte at 10 GB/s; half a megabyte is added, three bytes of traffic each.
  const double inner = all_reduce_time(cluster, {device(0), device(1)}, megabyte).count;
  CHECK(inner == doctest::Approx(1e-4 + 2e-6 + 1.5e-4));
  // Six rounds of a quarter at 1 GB/s; three quarters are added.
  const double all = all_reduce_time(cluster, {device(0), device(1), device(2), device(3)}, megabyte).count;
  CHECK(all == doctest::Approx(1.5e-3 + 6e-5 + 2.25e-4));
  CHECK(all_reduce_time(cluster, {device(1)}, megabyte).count == 0);
}

TEST_CASE("measured messages and additions take the place of memory traffic") {
  ir::Cluster cluster = two_hosts();
  cluster.runtime = {.message = Seconds(1e-6), .message_byte = 2e-10, .add_byte = 4e-10};
  const double seconds = all_reduce_time(cluster, {device(0), device(1)}, Bytes(1000000)).count;
  CHECK(seconds == doctest::Approx(1e-4 + 2e-6 + 2e-4 + 2e-6 + 2e-4));
  CHECK(total_time(cluster, {device(0), device(1), device(3)}).count == doctest::Approx(2 * (1e-5 + 2e-6)));
  CHECK(total_time(cluster, {device(0)}).count == 0);
}

TEST_CASE("copies of a weight are summed by all stages at once; one with fewer replicas sends more often") {
  const ir::Cluster cluster = two_hosts();
  const Bytes megabyte(1000000);
  const double latency = 1e-5, message = 1e-3, addition = 3e-4;
  CHECK(copies_sum_time(cluster, {{device(0)}, {device(2)}}, megabyte).count ==
        doctest::Approx(latency + message + addition));
  CHECK(copies_sum_time(cluster, {{device(0)}, {device(1), device(2), device(3)}}, megabyte).count ==
        doctest::Approx(latency + 3 * message + addition));
  CHECK(copies_sum_time(cluster, {{device(0)}, {device(1)}, {device(2)}}, megabyte).count ==
        doctest::Approx(latency + 2 * message + 2 * addition));
  CHECK(copies_sum_time(cluster, {{device(0)}, {device(0)}}, megabyte).count == 0);
  CHECK(copies_sum_time(cluster, {{device(0), device(2)}}, megabyte).count == 0);
}

TEST_CASE("equal devices are the documented ones") {
  const ir::Cluster cluster = ir::equal_devices(3);
  CHECK(cluster.devices.size() == 3);
  CHECK(cluster.devices[device(2)].memory == Bytes(int64_t{16} << 30));
  CHECK(cluster.link(device(0), device(2)).bandwidth.count == 5e9);
}
