#pragma once
// Each policy that trains, with flags that give it stages and devices.

#include <string>
#include <vector>

namespace graphpipe::tests {

struct PolicyCase {
  std::string policy;
  std::vector<std::string> flags;
};

// Four stages, on four devices or two; one folder holds them all, because their code does not depend on the order.
inline const std::vector<PolicyCase>& cases_of_cut() {
  const std::vector<std::string> four = {"--devices", "4"}, two = {"--devices", "2"};
  const auto with = [](std::vector<std::string> flags, const std::vector<std::string>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  static const std::vector<PolicyCase> kCases = {
      {"gpipe", with(four, {"--backward", "fifo"})},
      {"gpipe", with(four, {"--backward", "lifo"})},
      {"1f1b", four},
      {"dapple-a", four},
      {"dapple-b", four},
      {"kfkb", four},
      {"none", four},
      {"auto", four},
      {"pipedream", four},
      {"pipedream", with(four, {"--vertical-sync"})},
      {"pipedream-rr", with({"--devices", "5", "--stages", "4"}, {"--replicas", "1=2"})},
      {"2bw", four},
      {"2bw", with(four, {"--update", "4"})},
      {"zb-1p", four},
      {"zb-2p", four},
      {"interleaved", with(two, {"--group", "2"})},
      {"interleaved-zb", two},
      {"looped-bfs", two},
      {"zb-v", two},
      {"v-1f1b", two},
      {"v-half", two},
      {"v-min", two},
      {"dualpipev", two},
      {"dualpipe", four},
      {"chimera", four},
  };
  return kCases;
}

// The whole model on every device.
inline const std::vector<PolicyCase>& cases_of_whole() {
  static const std::vector<PolicyCase> kCases = {
      {"data-parallel", {"--devices", "3"}},
      {"parameter-server", {"--devices", "3"}},
  };
  return kCases;
}

}  // namespace graphpipe::tests
