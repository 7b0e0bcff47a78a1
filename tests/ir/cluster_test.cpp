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

TEST_CASE("a message costs latency and size over bandwidth, nothing on one device") {
  const ir::Cluster cluster = two_hosts();
  CHECK(transfer_time(cluster, device(0), device(3), Bytes(1000000)).count == doctest::Approx(1e-5 + 1e-3));
  CHECK(transfer_time(cluster, device(2), device(2), Bytes(1000000)).count == 0);
}

TEST_CASE("an all-reduce costs what a ring costs over its slowest link") {
  const ir::Cluster cluster = two_hosts();
  const double inner = all_reduce_time(cluster, {device(0), device(1)}, Bytes(1000000)).count;
  CHECK(inner == doctest::Approx(1e-4 + 2e-6));
  const double all = all_reduce_time(cluster, {device(0), device(1), device(2), device(3)}, Bytes(1000000)).count;
  CHECK(all == doctest::Approx(1.5e-3 + 6e-5));
  CHECK(all_reduce_time(cluster, {device(1)}, Bytes(1000000)).count == 0);
}

TEST_CASE("equal devices are the documented ones") {
  const ir::Cluster cluster = ir::equal_devices(3);
  CHECK(cluster.devices.size() == 3);
  CHECK(cluster.devices[device(2)].memory == Bytes(int64_t{16} << 30));
  CHECK(cluster.link(device(0), device(2)).bandwidth.count == 5e9);
}
