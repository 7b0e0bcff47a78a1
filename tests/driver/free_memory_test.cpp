#include "driver/launch/free_memory.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "support/units.h"
#include "tests/driver/fake_runtime.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& words) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << words;
}

}  // namespace

TEST_CASE("free is what the system has available, and what every control group around the process leaves") {
  const fs::path root = tests::FakeRuntime::make_folder();
  CHECK(free_memory_bytes(root) == kInfinity);
  write(root / "proc/meminfo", "MemTotal: 100 kB\nMemFree: 7 kB\nMemAvailable:   60 kB\n");
  CHECK(free_memory_bytes(root) == 60 * 1024);
  write(root / "proc/self/cgroup", "1:cpu:/other\n0::/outer/inner\n");
  CHECK(free_memory_bytes(root) == 60 * 1024);
  write(root / "sys/fs/cgroup/outer/inner/memory.max", "max\n");
  write(root / "sys/fs/cgroup/outer/memory.max", "50000\n");
  write(root / "sys/fs/cgroup/outer/memory.current", "12000\n");
  CHECK(free_memory_bytes(root) == 38000);
  write(root / "sys/fs/cgroup/outer/inner/memory.max", "20000\n");
  write(root / "sys/fs/cgroup/outer/inner/memory.current", "30000\n");
  CHECK(free_memory_bytes(root) == 0);
  CHECK(free_memory_bytes() > 0);
  fs::remove_all(root);
}

}  // namespace graphpipe::driver
