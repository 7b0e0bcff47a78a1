#include "driver/launch/free_memory.h"

#include <algorithm>
#include <fstream>

#include "support/units.h"

namespace graphpipe::driver {
namespace {

/// The file's first number; infinity where it has none, as where a limit is "max".
double number_in(const std::string& path) {
  std::ifstream file(path);
  double number = 0;
  return file >> number ? number : kInfinity;
}

double available_to_system(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string word;
  while (file >> word)
    if (double kilobytes = 0; word == "MemAvailable:" && file >> kilobytes) return 1024 * kilobytes;
  return kInfinity;
}

/// A group's own limit may be "max", and that of one around it not.
double left_by_groups(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string group;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::")) group = line.substr(3);
  double left = kInfinity;
  for (;; group.resize(group.rfind('/'))) {
    const std::string folder = root + "/sys/fs/cgroup" + group;
    const double limit = number_in(folder + "/memory.max");
    if (limit < kInfinity) left = std::min(left, std::max(0.0, limit - number_in(folder + "/memory.current")));
    if (group.rfind('/') == std::string::npos) return left;
  }
}

}  // namespace

double free_memory_bytes(const std::string& root) { return std::min(available_to_system(root), left_by_groups(root)); }

}  // namespace graphpipe::driver
