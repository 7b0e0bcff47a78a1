// One line tells how full devices are, of 4 as of 1,024.
#include "driver/report/device_bytes.h"

#include <doctest/doctest.h>

namespace graphpipe::driver {
namespace {

constexpr int64_t kMiB = 1 << 20;

std::vector<DeviceBytes> devices(size_t count, const auto& mib_of) {
  std::vector<DeviceBytes> all;
  for (size_t device = 0; device < count; ++device)
    all.push_back({.device = device, .bytes = Bytes(kMiB * mib_of(device))});
  return all;
}

TEST_CASE("devices that are as full stand together, the fullest first") {
  CHECK(device_bytes_text(devices(1, [](size_t) { return 3; })) == "3 MiB on device 0");
  CHECK(device_bytes_text(devices(4, [](size_t device) { return device == 2 ? 3 : 1; })) ==
        "3 MiB on device 2, 1 MiB on devices 0, 1, 3");
  CHECK(device_bytes_text(devices(1024, [](size_t device) { return device < 512 ? 5 : 9; })) ==
        "9 MiB on devices 512 to 1023, 5 MiB on devices 0 to 511");
  CHECK(device_bytes_text({{.device = 0, .bytes = Bytes(kMiB)}, {.device = 1, .bytes = Bytes(kMiB + 1)}}) ==
        "1 MiB on devices 0, 1");
}

TEST_CASE("of many different figures the largest are told, and how many devices have less") {
  CHECK(device_bytes_text(devices(1000, [](size_t device) { return device / 2 + 1; })) ==
        "500 MiB on devices 998, 999, 499 MiB on devices 996, 997, 498 MiB on devices 994, 995, 497 MiB on devices "
        "992, 993, "
        "496 MiB on devices 990, 991, 495 MiB on devices 988, 989, 494 MiB on devices 986, 987, 493 MiB on devices "
        "984, 985, "
        "less on 984 others");
}

}  // namespace
}  // namespace graphpipe::driver
